# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser: it renders, sorts, and runs no name."""

import os
import shutil
import tempfile
import threading
import unittest

from tests.integration import servers
from tests.unit.report import fleets
from tests.unit.store import base
from vswitch_aware_scheduler.report import page
from vswitch_aware_scheduler.report import server


def browser():
    """Return the path of Chromium.

    :raises SkipTest: where it, or playwright, is not installed; with the
        variable CI the error itself
    """
    try:
        import playwright.sync_api  # noqa: F401
        return servers.program('chromium')
    except (ImportError, servers.MissingProgram) as error:
        if os.environ.get('CI'):
            raise
        raise unittest.SkipTest(str(error)) from None


class ReportPageTest(base.StoreTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        path = browser()
        from playwright import sync_api
        cls.playwright = sync_api.sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        # The sandbox wants a user that is not root.
        cls.browser = cls.playwright.chromium.launch(
            executable_path=path, args=['--no-sandbox'])
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        fleets.fill(self.store, base.NOW)

    def open(self, address, **options):
        """Return a page of the browser, and what it complains of."""
        shown = self.browser.new_page(**options)
        self.addCleanup(shown.close)
        self.complaints = []
        shown.on('console', lambda line: self.complaints.append(line.text))
        shown.on('pageerror', lambda error: self.complaints.append(
            str(error)))
        shown.on('dialog', lambda dialog: (
            self.complaints.append(dialog.message), dialog.dismiss()))
        shown.on('request', lambda request: self.complaints.append(
            request.url) if not request.url.startswith(
                (address.partition('#')[0], 'data:')) else None)
        shown.goto(address)
        return shown

    def written(self, report=None, **options):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        path = os.path.join(directory, 'report.html')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(page.Page().render(report or fleets.report_of(
                self.store).report(base.NOW,
                                   decisions=self.store.decisions())))
        return self.open(f'file://{path}', **options)

    def column(self, shown, table, number):
        return shown.locator(
            f'[data-table={table}] tbody tr > :nth-child({number})'
        ).all_inner_texts()

    def test_the_page_renders_without_a_complaint_and_runs_no_name(self):
        for width in (1280, 420):
            shown = self.written(viewport={'width': width, 'height': 800})
            for details in shown.locator('details').all():
                details.locator('summary').click()
            self.assertEqual([], self.complaints)
            self.assertIsNone(shown.evaluate('window.hacked'))
            self.assertIn(fleets.HOSTILE, self.column(shown, 'hosts', 1))
            self.assertIn(fleets.HOSTILE, self.column(shown, 'vms-0', 2))
            # All pictures are there, and nothing is wider than the window.
            self.assertTrue(shown.evaluate(
                '[...document.images].every(i => i.loading === "lazy" || '
                '(i.complete && i.naturalWidth > 0))'))
            self.assertLessEqual(*shown.evaluate(
                '[document.documentElement.scrollWidth, '
                'document.documentElement.clientWidth]'))

    def test_a_column_sorts_both_ways_by_its_numbers(self):
        shown = self.written()
        title = shown.locator('[data-table=hosts] th[scope=col]').nth(2)
        title.locator('button').click()
        self.assertEqual('ascending', title.get_attribute('aria-sort'))
        self.assertEqual(['0', '1', '10'], self.column(shown, 'hosts', 3))
        # By the keyboard, too.
        title.locator('button').focus()
        shown.keyboard.press('Enter')
        self.assertEqual('descending', title.get_attribute('aria-sort'))
        self.assertEqual(['10', '1', '0'], self.column(shown, 'hosts', 3))

    def test_a_search_finds_names_and_says_how_many(self):
        shown = self.written()
        shown.get_by_label('Search Hosts').fill('<SCRIPT>')
        self.assertEqual([fleets.HOSTILE], self.column(shown, 'hosts', 1))
        status = shown.locator('[data-table=hosts] [role=status]')
        self.assertEqual('1–1 of 1', status.inner_text())
        shown.get_by_label('Search Hosts').fill('nothing like this')
        self.assertEqual([], self.column(shown, 'hosts', 1))
        self.assertEqual('none found', status.inner_text())

    def test_a_long_table_has_pages(self):
        report = fleets.report_of(self.store).report(base.NOW)
        row = next(row for row in report['hosts'] if row['host'] == 'h2')
        report['hosts'] = [{**row, 'host': f'c{number:04}',
                            'overload_probability': number / 1e4}
                           for number in range(1200)]
        shown = self.written(report)
        status = shown.locator('[data-table=hosts] [role=status]')
        self.assertEqual('1–50 of 1,200', status.inner_text())
        self.assertEqual('c1199', self.column(shown, 'hosts', 1)[0])
        shown.locator('[data-table=hosts]').get_by_text('Next').click()
        self.assertEqual('c1149', self.column(shown, 'hosts', 1)[0])
        self.assertEqual(1200, shown.locator('#map .cell').count())
        # A click on a cell of the map finds the host.
        shown.locator('#map .cell').nth(7).click()
        self.assertEqual(['c0007'], self.column(shown, 'hosts', 1))
        self.assertEqual([], self.complaints)

    def test_a_link_to_a_host_opens_its_details(self):
        shown = self.written()
        details = shown.locator('#host-0')
        self.assertIsNone(details.get_attribute('open'))
        shown.get_by_role('link', name='h1', exact=True).click()
        self.assertIsNotNone(details.get_attribute('open'))
        self.assertEqual(10, len(self.column(shown, 'vms-0', 1)))

    def test_the_map_can_be_coloured_by_utilisation(self):
        shown = self.written()
        button = shown.get_by_role('button', name='By utilisation')
        button.click()
        self.assertEqual('true', button.get_attribute('aria-pressed'))
        self.assertIn('by-use', shown.locator('#map').get_attribute('class'))

    def test_the_page_is_dark_where_the_reader_wants_it(self):
        colours = {scheme: self.written(color_scheme=scheme).evaluate(
            'getComputedStyle(document.body).backgroundColor')
            for scheme in ('light', 'dark')}
        self.assertEqual('rgb(255, 255, 255)', colours['light'])
        self.assertNotEqual(colours['light'], colours['dark'])

    def test_a_usual_window_shows_all_columns_of_the_hosts(self):
        report = fleets.report_of(self.store).report(base.NOW)
        for number, row in enumerate(report['hosts']):
            row.update(
                host=f'compute-{number:04}.region-one.example.org',
                profile='ovs-vxlan-microserver', above=True, limit=.0123,
                measure='vswitch-calibrate --quick',
                overload_probability=.01234, utilisation=.98765,
                loss_fraction=1.234e-05, burn_rate=12.34, error_budget={
                    'left_days': -12.34, 'vm_overload_seconds': 1.234,
                    'vm_seconds': 1e5})
        report['details'] = []
        shown = self.written(report, viewport={'width': 1400, 'height': 900})
        self.assertLessEqual(*shown.locator(
            '[data-table=hosts] .scroll').evaluate(
                'place => [place.scrollWidth, place.clientWidth]'))

    def test_the_served_page_leads_to_every_host_and_back(self):
        reports = server.Reports(
            lambda: fleets.report_of(self.store),
            lambda fleet, host: fleet.report(base.NOW, host=host))
        serving = server.ReportServer('127.0.0.1', 0, reports)
        self.addCleanup(serving.server_close)
        thread = threading.Thread(target=serving.serve_forever,
                                  kwargs={'poll_interval': .05})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(serving.shutdown)
        shown = self.open(serving.url)
        shown.get_by_role('link', name='window.hacked').click()
        self.assertIn(fleets.HOSTILE, shown.locator('h1').inner_text())
        shown.get_by_role('link', name='All hosts').click()
        self.assertEqual(3, len(self.column(shown, 'hosts', 1)))
        self.assertEqual([], [line for line in self.complaints
                              if 'favicon' not in line])
        self.assertIsNone(shown.evaluate('window.hacked'))
