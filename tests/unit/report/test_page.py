# SPDX-License-Identifier: Apache-2.0

import base64
import hashlib
import html.parser
import json
import sys
import unittest
from unittest import mock

from tests.fakes import store as fake_store
from tests.unit.report import fleets
from tests.unit.store import base
from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.fleet import view
from vswitch_aware_scheduler.report import contents
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler.report import pictures
from vswitch_aware_scheduler import store
from vswitch_aware_scheduler.vswitch import profile


class _Reader(html.parser.HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.policy, self.contents = [], None, {}
        self._open = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if attributes.get('http-equiv') == 'Content-Security-Policy':
            self.policy = attributes['content']
        if tag in ('script', 'style'):
            self._open = (tag, attributes.get('type'))
            self.contents[self._open] = ''

    def handle_endtag(self, tag):
        if self._open and tag == self._open[0]:
            self._open = None

    def handle_data(self, text):
        if self._open:
            self.contents[self._open] += text

    @property
    def tables(self):
        """{name of a table: {'columns': ..., 'rows': ...}}."""
        return json.loads(self.contents['script', 'application/json'])


class PageTestCase(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        target = self.make_store()
        fleets.fill(target, base.NOW)
        self.contents = fleets.report_of(target)
        self.decisions = target.decisions()


class WholePageTestCase(unittest.TestCase):
    """The page of one fleet; no test changes it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        test = PageTestCase('setUp')
        test.setUp()
        cls.addClassCleanup(test.doCleanups)
        cls.report = test.contents.report(base.NOW, decisions=test.decisions)
        cls.text = page.Page().render(cls.report)
        cls.reader = _Reader(cls.text)

    def test_names_are_text_wherever_they_are(self):
        self.assertNotIn('<img src=x', self.text)
        self.assertNotIn('<script>window', self.text)
        self.assertEqual(2, sum(tag == 'script'
                                for tag, _ in self.reader.tags))
        # And what Jinja2 would compute is not computed.
        self.assertIn('{{7*7}}', self.text)
        for table, column in (('hosts', 0), ('vms-0', 1)):
            self.assertIn(fleets.HOSTILE, [
                row[column] for row in self.reader.tables[table]['rows']])

    def test_nothing_comes_from_outside(self):
        for tag, attributes in self.reader.tags:
            self.assertNotIn(tag, ('link', 'iframe', 'object', 'form', 'base'))
            for name in ('src', 'srcset', 'href', 'data', 'poster'):
                self.assertRegex(attributes.get(name, '#'),
                                 r'^(#|data:image/svg\+xml;base64,)')
            # A policy without 'unsafe-inline' would ignore them.
            self.assertEqual([], [name for name in attributes
                                  if name == 'style' or name[:2] == 'on'])

    def test_the_policy_lets_only_the_script_and_the_style_of_the_page(self):
        policy = dict(part.split(' ', 1) for part
                      in self.reader.policy.split('; '))
        self.assertEqual("'none'", policy['default-src'])
        for kind in ('script', 'style'):
            digest = base64.b64encode(hashlib.sha256(
                self.reader.contents[kind, None].encode()).digest()).decode()
            self.assertEqual(f"'sha256-{digest}'", policy[f'{kind}-src'])
        self.assertNotIn('unsafe', self.reader.policy)

    def test_a_profile_of_other_machines_has_the_command_that_measures(self):
        self.assertNotIn('measured on other machines', self.text)
        item = profile.catalogue()['ovs-vxlan']
        text = page.Page().render({**self.report, 'hosts': [
            {**row, 'profile': item.name, 'measure': item.calibration_command}
            for row in self.report['hosts']]})
        self.assertIn('measured on other machines', text)
        self.assertEqual(1, text.count(
            f'<code>{item.calibration_command}</code>'))
        self.assertEqual(
            {'ovs-vxlan, not measured here'},
            {row[1] for row in _Reader(text).tables['hosts']['rows']})

    def test_every_link_within_the_page_has_its_target(self):
        ids = {attributes.get('id') for _, attributes in self.reader.tags}
        links = [attributes['href'] for tag, attributes in self.reader.tags
                 if tag == 'a']
        links += [link for table in self.reader.tables.values()
                  for link in table.get('links', []) if link]
        self.assertLess(5, len(links))
        self.assertLessEqual({link[1:] for link in links}, ids)

    def test_every_picture_has_words_and_every_place_a_table(self):
        pictures = [attributes for tag, attributes in self.reader.tags
                    if tag == 'img']
        self.assertLess(3, len(pictures))
        for attributes in pictures:
            self.assertTrue(attributes['alt'])
            svg = base64.b64decode(attributes['src'].partition(',')[2])
            self.assertIn(b'<svg', svg)
        for _, attributes in self.reader.tags:
            self.assertIn(attributes.get('data-table', 'hosts'),
                          self.reader.tables)

    def test_pages_are_the_same_for_the_same_report(self):
        self.assertEqual(self.text, page.Page().render(self.report))

    def test_the_axis_of_the_refusals_has_times(self):
        drawn = pictures.refusals(contents.refusals([
            fake_store.decision(number, 3600.0 * number)
            for number in range(1, 49)], 48)).decode()
        self.assertIn('time, UTC', drawn)
        # The last label names the day.
        for text in ('Nov-13', 'Nov-14'):
            self.assertIn(text, drawn)


class OtherPagesTestCase(PageTestCase):

    def test_error_budgets_are_in_the_table_and_beside_a_host(self):
        target = self.make_store()
        target.settle_budgets(store.BudgetState(300.0, base.NOW), [
            (None, fake_store.budget(
                'h1', balance=-51.84, why=fleets.HOSTILE,
                unknown_why='9 of 10 instances were measured',
                burn={'21600': 2.5}))])
        report = fleets.report_of(target).report(base.NOW)
        self.assertEqual(1, report['summary']['overspent'])
        text = page.Page().render(report)
        self.assertNotIn('<img src=x', text)
        for part in ('Error budget: 52 s of overload too much: paid back by '
                     '0.1 days in use without overload.',
                     '9 of 10 instances were measured',
                     '<dt>error budgets overspent</dt><dd>1</dd>'):
            self.assertIn(part, text)
        hosts = _Reader(text).tables['hosts']
        columns = [name for name, _ in hosts['columns']]
        rows = {row[0]: row for row in hosts['rows']}
        for name, expected in (('Error budget, days', -.1),
                               ('Burn rate, 6 h', 2.5)):
            at = columns.index(name)
            self.assertEqual((expected, None), (rows['h1'][at],
                                                rows['h2'][at]))

    def test_the_page_shows_overload_who_made_it_and_predictions(self):
        target = self.make_store()
        today = int(base.NOW // 86400)
        target.settle_budgets(store.BudgetState(300.0, base.NOW), [
            (None, fake_store.budget(
                'h1', vm_seconds=7200.0, vm_overload_seconds=36.0,
                prediction=store.Prediction(
                    .01, seconds=40000.0, expected_seconds=400.0,
                    overload_seconds=1000.0, deviations=3.5)))],
            charges=[store.Charge('host', 'h1', base.instance_uuid(1), today,
                                  'p1', 90.0)],
            vm_times=[store.VMTime('p1', today, 3600.0, 18.0)])
        for number, conflicts in ((1, 2), (2, 3)):
            target.report_worker(store.Worker(
                f'w{number}', 'ctl', base.NOW, base.NOW, {'claims': {
                    'claims_made': 50, 'claim_conflicts': conflicts,
                    'claim_misses': 1}}))
        text = page.Page().render(
            fleets.report_of(target).report(base.NOW))
        words = ' '.join(text.split())
        for part in ('predicted in 0.01 and measured in 0.025 of 11.1 h: '
                     'measurements contradict the prediction',
                     'by p1: 90 s.', 'by these workers: 100, conflicts 5, '
                     'without waiting for the store 2'):
            self.assertIn(part, words)
        tables = _Reader(text).tables
        self.assertEqual([['p1', 11, 105.0, 1.0, .005, 90.0]],
                         tables['projects']['rows'])
        self.assertIn(.005, [row[-1] for row in tables['hosts']['rows']])

    def test_the_page_says_what_an_empty_fleet_lacks(self):
        target = self.make_store()
        fleets.clear(target)
        text = page.Page().render(contents.Contents(
            view.FleetView(target)).report(base.NOW))
        for part in ('The store has no host', 'No aggregate names an',
                     'no decision of a scheduler', 'No modeler has reported'):
            self.assertIn(part, text)

    def test_a_fleet_without_switch_profiles_has_a_page(self):
        of_store = fleets.report_of(self.make_store(), admission.HostPolicy(
            None, judged=False))
        report = of_store.report(base.NOW)
        self.assertIn('No host with a switch profile has an instance',
                      page.Page().render(report))
        text = page.Page().render(of_store.report(base.NOW, host='h1'))
        self.assertIn('no switch profile', text)

    def test_a_host_has_a_page_of_its_own(self):
        report = self.contents.report(base.NOW, host=fleets.HOSTILE)
        text = page.Page(lambda host: '/host/x').render(report)
        self.assertNotIn('<img src=x', text)
        self.assertNotIn('id="map"', text)
        self.assertIn('href="/"', text)


class LibraryTestCase(unittest.TestCase):

    def test_a_library_that_is_missing_is_named(self):
        for library in ('jinja2', 'matplotlib'):
            with mock.patch.dict(sys.modules, {library: None}), \
                    self.assertRaisesRegex(exceptions.InvalidInput,
                                           r'install .*\[report\]'):
                page.require()
