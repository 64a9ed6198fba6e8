# SPDX-License-Identifier: Apache-2.0
"""Alert rules checked by promtool, the dashboard by the SDK of Grafana."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from grafana_foundation_sdk.cog import encoder
from grafana_foundation_sdk.models import dashboard
import prometheus_client
import yaml

from vswitch_aware_scheduler.modeler import metrics as modeler_metrics
from vswitch_aware_scheduler.scheduler import metrics

FILES = (pathlib.Path(__file__).resolve().parents[2] / 'etc'
         / 'vswitch_aware_scheduler')
RULES = FILES / 'prometheus-alerts.yaml.sample'
DASHBOARD = FILES / 'grafana-dashboard.json'

_BURN = ('vswitch_modeler_error_budget_burn_rate'
         '{{kind="{}",of="most",window="{}"}}')

#: {alert: (series, values, whether it fires after half an hour)}
CASES = (
    ('VSwitchFilterPassesUnjudged',
     {'vswitch_scheduler_requests_unjudged_total{why="store"}': '0+1x60'},
     {'vswitch_scheduler_requests_unjudged_total{why="store"}': '7+0x60'}),
    ('VSwitchStoreDegraded', {'vswitch_scheduler_degraded': '1+0x60'},
     {'vswitch_scheduler_degraded': '0+0x60'}),
    ('VSwitchClaimsMissed',
     {'vswitch_scheduler_claims_made_total': '0+10x60',
      'vswitch_scheduler_claim_misses_total': '0+1x60'},
     {'vswitch_scheduler_claims_made_total': '0+100x60',
      'vswitch_scheduler_claim_misses_total': '0+1x60'}),
    ('VSwitchRecordOld', {'vswitch_scheduler_record_age_seconds': '0+60x60'},
     {'vswitch_scheduler_record_age_seconds': '3+0x60'}),
    ('VSwitchRefusesEveryHost',
     {'vswitch_scheduler_requests_judged_total': '0+10x60',
      'vswitch_scheduler_requests_without_host_total': '0+3x60'},
     {'vswitch_scheduler_requests_judged_total': '0+10x60',
      'vswitch_scheduler_requests_without_host_total': '0+1x60'}),
    ('VSwitchHostsAboveLimit',
     {'vswitch_scheduler_profile_hosts_above_limit{profile="p"}': '1+0x60'},
     {'vswitch_scheduler_profile_hosts_above_limit{profile="p"}': '0+0x60'}),
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
    ('VSwitchErrorBudgetBurnsFast',
     {_BURN.format('host', '1h'): '20+0x60',
      _BURN.format('host', '6h'): '7+0x60'},
     # The longer window is of another kind.
     {_BURN.format('host', '1h'): '20+0x60',
      _BURN.format('host', '6h'): '5+0x60',
      _BURN.format('uplink', '6h'): '9+0x60'}),
    ('VSwitchErrorBudgetOverspent',
     {'vswitch_modeler_error_budgets_in_debt{kind="host"}': '1+0x60'},
     {'vswitch_modeler_error_budgets_in_debt{kind="host"}': '0+0x60'}),
)


class PromtoolTestCase(unittest.TestCase):

    def promtool(self, *words):
        done = subprocess.run(['promtool', *map(str, words)],
                              capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def check_names(self, text):
        """Check that each metric named in a text is exported."""
        of_scheduler = prometheus_client.CollectorRegistry()
        metrics._counters(of_scheduler)
        of_scheduler.register(metrics._Gauges(lambda: {
            **dict.fromkeys(metrics._GAUGES), 'risks': {},
            'counts': dict.fromkeys(metrics._CLAIMS, 0)}))
        names = {family.name for registry in (
            of_scheduler, modeler_metrics.ModelerMetrics()._registry)
            for family in registry.collect()}
        named = re.findall(r'vswitch_(?:scheduler|modeler)_\w+', text)
        self.assertTrue(named)
        for name in named:
            self.assertIn(
                re.sub('_(total|bucket|sum|count)$', '', name), names)


class AlertsTestCase(PromtoolTestCase):

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

    def test_each_metric_of_a_rule_is_exported(self):
        self.check_names(RULES.read_text())


class DashboardTestCase(PromtoolTestCase):

    def setUp(self):
        self.text = DASHBOARD.read_text()
        self.panels = [panel for panel in json.loads(self.text)['panels']
                       if panel['type'] != 'row']

    def test_grafana_has_each_key_of_it(self):
        # What the schema does not have is lost on the way.
        again = encoder.JSONEncoder(sort_keys=True, indent=2).encode(
            dashboard.Dashboard.from_json(json.loads(self.text)))
        self.assertEqual(self.text, again + '\n')

    def test_each_query_is_promql(self):
        queries = [target['expr'] for panel in self.panels
                   for target in panel['targets']]
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / 'rules.yaml'
            path.write_text(yaml.safe_dump({'groups': [{
                'name': 'dashboard', 'rules': [
                    {'record': f'query:{number}', 'expr': query}
                    for number, query in enumerate(queries)]}]}))
            self.promtool('check', 'rules', path)

    def test_each_metric_of_a_panel_is_exported(self):
        self.check_names(json.dumps(self.panels))

    def test_each_panel_has_a_text_and_a_unit(self):
        for panel in self.panels:
            self.assertTrue(panel['description'], panel['title'])
            self.assertTrue(panel['fieldConfig']['defaults']['unit'])
