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


def _one(name, bad='1+0x60', good='0+0x60'):
    """Return the series of one metric: while it is bad, while it is good."""
    return {f'vswitch_{name}': bad}, {f'vswitch_{name}': good}


def _scheduler(**values):
    """Return series of the scheduler."""
    return {f'vswitch_scheduler_{name}_total': text
            for name, text in values.items()}


def _seconds(fast):
    """Return the histogram of nine decisions a minute, some of them fast."""
    return {f'vswitch_scheduler_decision_seconds_bucket{{le="{le}"}}':
            f'0+{count}x60'
            for le, count in (('0.5', fast), ('1.0', 9), ('+Inf', 9))}


#: (alert, series while it fires, series while it does not)
CASES = (
    ('VSwitchFilterPassesUnjudged', *_one(
        'scheduler_requests_unjudged_total{why="store"}', '0+1x60', '7+0x60')),
    ('VSwitchStoreDegraded', *_one('scheduler_degraded')),
    ('VSwitchClaimsMissed',
     _scheduler(claims_made='0+10x60', claim_misses='0+1x60'),
     _scheduler(claims_made='0+100x60', claim_misses='0+1x60')),
    ('VSwitchRecordOld', *_one(
        'scheduler_record_age_seconds', '0+60x60', '3+0x60')),
    ('VSwitchRefusesEveryHost',
     _scheduler(requests_judged='0+10x60', requests_without_host='0+3x60'),
     _scheduler(requests_judged='0+10x60', requests_without_host='0+1x60')),
    ('VSwitchHostsAboveLimit', *_one(
        'scheduler_profile_hosts_above_limit{profile="p"}')),
    ('VSwitchDecisionsSlow', _seconds(fast=1), _seconds(fast=9)),
    ('VSwitchModelerSilent', *_one(
        'modeler_last_success_timestamp_seconds', '-7200+0x60', '0+60x60')),
    ('VSwitchModelerWaits', *_one('modeler_waiting{kind="store"}')),
    ('VSwitchErrorBudgetBurnsFast',
     {_BURN.format('host', '1h'): '20+0x60',
      _BURN.format('host', '6h'): '7+0x60'},
     # The longer window is of another kind.
     {_BURN.format('host', '1h'): '20+0x60',
      _BURN.format('host', '6h'): '5+0x60',
      _BURN.format('uplink', '6h'): '9+0x60'}),
    ('VSwitchErrorBudgetOverspent', *_one(
        'modeler_error_budgets_in_debt{kind="host"}')),
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
