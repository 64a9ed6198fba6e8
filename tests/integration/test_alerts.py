# SPDX-License-Identifier: Apache-2.0
"""The alert rules, checked and run by Prometheus' own promtool."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

from vswitch_aware_scheduler.modeler import metrics as modeler_metrics
from vswitch_aware_scheduler.scheduler import metrics

RULES = (pathlib.Path(__file__).resolve().parents[2] / 'etc'
         / 'vswitch_aware_scheduler' / 'prometheus-alerts.yaml.sample')

#: {alert: (series, values, whether it fires after half an hour)}
CASES = (
    ('VSwitchFilterPassesUnjudged',
     {'vswitch_scheduler_requests_unjudged_total{why="store"}': '0+1x60'},
     {'vswitch_scheduler_requests_unjudged_total{why="store"}': '7+0x60'}),
    ('VSwitchStoreDegraded', {'vswitch_scheduler_degraded': '1+0x60'},
     {'vswitch_scheduler_degraded': '0+0x60'}),
    ('VSwitchRecordOld', {'vswitch_scheduler_record_age_seconds': '0+60x60'},
     {'vswitch_scheduler_record_age_seconds': '3+0x60'}),
    ('VSwitchRefusesEveryHost',
     {'vswitch_scheduler_requests_judged_total': '0+10x60',
      'vswitch_scheduler_requests_without_host_total': '0+3x60'},
     {'vswitch_scheduler_requests_judged_total': '0+10x60',
      'vswitch_scheduler_requests_without_host_total': '0+1x60'}),
    ('VSwitchDecisionsSlow',
     {'vswitch_scheduler_decision_seconds_bucket{le="0.5"}': '0+1x60',
      'vswitch_scheduler_decision_seconds_bucket{le="1.0"}': '0+9x60',
      'vswitch_scheduler_decision_seconds_bucket{le="+Inf"}': '0+9x60'},
     {'vswitch_scheduler_decision_seconds_bucket{le="0.5"}': '0+9x60',
      'vswitch_scheduler_decision_seconds_bucket{le="1.0"}': '0+9x60',
      'vswitch_scheduler_decision_seconds_bucket{le="+Inf"}': '0+9x60'}),
    ('VSwitchModelerSilent',
     {'vswitch_modeler_last_success_timestamp_seconds': '-7200+0x60'},
     {'vswitch_modeler_last_success_timestamp_seconds': '0+60x60'}),
    ('VSwitchModelerWaits',
     {'vswitch_modeler_waiting{kind="store"}': '1+0x60'},
     {'vswitch_modeler_waiting{kind="store"}': '0+0x60'}),
)


class AlertsTestCase(unittest.TestCase):

    def promtool(self, *words):
        done = subprocess.run(['promtool', *map(str, words)],
                              capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_the_rules_are_rules(self):
        self.promtool('check', 'rules', RULES)

    def test_each_alert_fires_when_it_should_and_only_then(self):
        rules = yaml.safe_load(RULES.read_text())['groups'][0]['rules']
        self.assertEqual([rule['alert'] for rule in rules],
                         [alert for alert, *_ in CASES])
        tests = []
        for alert, bad, good in CASES:
            for series, fires in ((bad, True), (good, False)):
                tests.append({
                    'interval': '1m', 'input_series': [
                        {'series': name, 'values': values}
                        for name, values in series.items()],
                    'promql_expr_test': [{
                        'expr': f'count(ALERTS{{alertname="{alert}",'
                                f'alertstate="firing"}}) or vector(0)',
                        'eval_time': '45m', 'exp_samples': [
                            {'labels': '{}', 'value': int(fires)}]}]})
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / 'test.yaml'
            path.write_text(yaml.safe_dump({
                'rule_files': [str(RULES)], 'evaluation_interval': '1m',
                'tests': tests}))
            self.promtool('test', 'rules', path)

    def test_each_name_is_one_that_is_told(self):
        names = {family.name for one in (
            metrics._Counts(lambda: dict.fromkeys(metrics._GAUGES)).registry,
            modeler_metrics.Metrics()._registry) for family in one.collect()}
        for name in re.findall(r'vswitch_(?:scheduler|modeler)_\w+',
                               RULES.read_text()):
            self.assertIn(re.sub('_(total|bucket)$', '', name), names)
