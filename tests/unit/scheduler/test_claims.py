# SPDX-License-Identifier: Apache-2.0

import collections
import unittest
from unittest import mock

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

from vswitch_aware_scheduler.scheduler import claims
from vswitch_aware_scheduler.traffic import model

LAW = model.TrafficModel.constant(5).law
OTHER_LAW = model.TrafficModel.constant(7).law


class ResidencyTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.residency = claims.Residency()

    def list(self, now=0.0, **listed):
        """Let hosts list instances: ``a='xy'`` are x and y on host a."""
        for host, uuids in listed.items():
            self.residency.observe(host, list(uuids), now)

    def claim(self, uuid, host, now=0.0, expires=600.0, law=LAW):
        self.residency.claim(uuid, host, law, expires, now)

    def assertResidents(self, **wanted):
        """Want who is on each host, and that host_of agrees."""
        for host, uuids in wanted.items():
            self.assertEqual(sorted(uuids),
                             sorted(self.residency.residents(host)), host)
            for uuid in uuids:
                self.assertEqual(host, self.residency.host_of(uuid))


class TestListings(ResidencyTestCase):

    def test_what_a_host_lists_is_on_it(self):
        self.list(a='xy', b='z')
        self.assertResidents(a='xy', b='z')
        self.list(a='y', b='zx')
        self.assertResidents(a='y', b='xz')

    def test_of_two_hosts_the_one_that_listed_it_last_has_it(self):
        self.list(a='x')
        self.list(b='x')
        self.assertResidents(a='', b='x')
        # That the first one still lists it, with another, is no news.
        self.list(a='xy')
        self.assertResidents(a='y', b='x')

    def test_when_the_last_one_drops_it_the_other_has_it_again(self):
        self.list(a='x')
        self.list(b='x')
        self.list(c='x')
        self.list(b='')
        self.assertResidents(a='', b='', c='x')
        self.list(c='')
        self.assertResidents(a='x', b='', c='')
        self.list(a='')
        self.assertIsNone(self.residency.host_of('x'))

    def test_a_host_never_seen_is_empty(self):
        self.assertEqual([], self.residency.residents('a'))
        self.assertIsNone(self.residency.listed('a'))
        self.assertIsNone(self.residency.host_of('x'))

    def test_who_comes_and_goes_is_told_where_that_is_all(self):
        residency = self.residency
        residency.observe('a', ['1', '2'], 0)
        self.assertEqual({}, residency.take_steps())
        residency.take_changed()
        residency.observe('a', ['1', '2', '3'], 0)
        residency.observe('a', ['1', '3'], 0)
        [(came, went), (none, two)] = residency.take_steps()['a']
        self.assertEqual((['3'], [], [], ['2']),
                         (list(came), list(went), list(none), list(two)))
        self.assertEqual(set(), residency.take_changed())
        # Those of whom there is another word are not all there is to tell.
        residency.observe('b', ['9'], 0)
        residency.claim('4', 'a', None, 100, 0)
        residency.take_changed()
        for host, listed in (('a', ['1', '3', '4']), ('b', ['9', '3']),
                             ('a', ['1', '4'])):
            residency.observe(host, listed, 0)
            self.assertEqual({}, residency.take_steps())
            self.assertIn(host, residency.take_changed())

    def test_changed_hosts_are_told_once(self):
        self.list(a='x', b='')
        self.assertEqual({'a', 'b'}, self.residency.take_changed())
        self.assertEqual(set(), self.residency.take_changed())
        self.list(a='x')
        self.assertEqual(set(), self.residency.take_changed())
        # It moves to b: both have changed.
        self.list(b='x')
        self.assertEqual({'a', 'b'}, self.residency.take_changed())
        self.list(b='')
        self.assertEqual({'a', 'b'}, self.residency.take_changed())


class TestClaims(ResidencyTestCase):

    def test_a_placement_counts_at_once_and_until_the_host_lists_it(self):
        self.list(a='y')
        self.claim('x', 'a')
        self.assertResidents(a='xy')
        self.assertEqual(['x'], [
            one.instance_uuid for one in self.residency.claims])
        self.list(a='yx')
        self.assertResidents(a='xy')
        self.assertEqual([], self.residency.claims)

    def test_a_claim_that_runs_out_vanishes(self):
        self.claim('x', 'a', expires=600.0)
        self.claim('y', 'b', expires=700.0)
        self.assertEqual([], self.residency.expire(599.9))
        expired = self.residency.expire(600.0)
        self.assertEqual([('x', 'a', LAW, 600.0)], [
            (one.instance_uuid, one.host, one.law, one.expires)
            for one in expired])
        self.assertResidents(a='', b='y')
        self.assertEqual([], self.residency.expire(600.0))

    def test_what_was_listed_stays_when_the_claim_runs_out(self):
        self.list(a='x')
        self.claim('x', 'b')
        self.assertResidents(a='', b='x')
        self.residency.expire(600.0)
        self.assertResidents(a='x', b='')

    def test_a_later_claim_replaces_the_earlier(self):
        self.claim('x', 'a')
        self.claim('x', 'b')
        self.assertResidents(a='', b='x')
        self.assertEqual(1, len(self.residency.claims))

    def test_the_source_that_still_lists_a_moving_one_does_not_count_it(
            self):
        self.list(a='xy')
        self.claim('x', 'b')
        self.assertResidents(a='y', b='x')
        # The source reports again, still with it, and then without.
        self.list(a='xyz')
        self.assertResidents(a='yz', b='x')
        self.list(a='yz')
        self.assertResidents(a='yz', b='x')
        self.list(b='x')
        self.assertResidents(a='yz', b='x')

    def test_a_destination_that_lists_it_before_the_source_drops_it(self):
        self.list(a='x')
        self.claim('x', 'b')
        self.list(b='x')
        self.assertResidents(a='', b='x')
        self.assertEqual([], self.residency.claims)
        self.list(a='')
        self.assertResidents(a='', b='x')

    def test_a_claim_that_is_withdrawn_was_never_there(self):
        self.list(a='x')
        self.claim('x', 'b')
        self.residency.withdraw('x', 0.0)
        self.residency.withdraw('nobody', 0.0)
        self.assertResidents(a='x', b='')

    def test_claims_change_the_hosts_on_both_ends(self):
        self.list(a='x')
        self.residency.take_changed()
        self.claim('x', 'b')
        self.assertEqual({'a', 'b'}, self.residency.take_changed())
        self.residency.expire(600.0)
        self.assertEqual({'a', 'b'}, self.residency.take_changed())


class TestSameHost(ResidencyTestCase):

    def test_a_resize_in_place_counts_once(self):
        self.list(a='xy')
        self.claim('x', 'a')
        self.assertEqual(['x', 'y'], sorted(self.residency.residents('a')))
        self.assertTrue(self.residency.claims[0].relisted)

    def test_a_host_that_drops_it_for_a_while_keeps_it(self):
        # Confirming the resize drops it from Nova's view while it runs.
        self.list(a='x')
        self.claim('x', 'a')
        self.list(a='', now=20.0)
        self.residency.expire(20.0 + claims.RELIST_SECONDS - 1)
        self.assertResidents(a='x')
        self.list(a='x', now=100.0)
        self.assertResidents(a='x')
        self.assertEqual([], self.residency.claims)

    def test_a_host_that_never_lists_it_again_has_lost_it(self):
        self.list(a='x')
        self.claim('x', 'a')
        self.list(a='', now=20.0)
        self.residency.expire(20.0 + claims.RELIST_SECONDS)
        self.assertResidents(a='')
        self.assertIsNone(self.residency.host_of('x'))

    def test_dropping_it_does_not_prolong_a_claim(self):
        self.list(a='x')
        self.claim('x', 'a', expires=50.0)
        self.list(a='', now=20.0)
        self.residency.expire(50.0)
        self.assertResidents(a='')

    def test_a_new_claim_dropped_by_another_host_runs_its_full_time(self):
        self.list(b='x')
        self.claim('x', 'a')
        self.list(b='', now=20.0)
        self.residency.expire(599.0)
        self.assertResidents(a='x')


class TestSettling(ResidencyTestCase):

    def test_nothing_is_doubtful_while_all_is_listed(self):
        self.assertTrue(self.residency.certain)
        self.list(a='x')
        self.assertTrue(self.residency.certain)
        self.assertEqual({}, self.residency.doubtful({'a'}))

    def test_a_boot_is_doubtful_only_where_its_host_is_refused(self):
        self.claim('x', 'a')
        self.assertFalse(self.residency.certain)
        self.assertEqual({}, self.residency.doubtful({'b'}))
        self.assertEqual({'x': None}, self.residency.doubtful({'a'}))
        self.list(a='x')
        self.assertTrue(self.residency.certain)

    def test_a_move_is_doubtful_until_it_is_settled(self):
        self.list(a='x')
        self.claim('x', 'b', now=70.0)
        self.list(a='', b='x')
        self.assertEqual({'x': 70.0}, self.residency.doubtful(set()))
        self.residency.settle('x', 'b', 0.0, stays=False)
        self.assertFalse(self.residency.certain)
        self.residency.settle('x', 'b', 0.0)
        self.assertTrue(self.residency.certain)
        self.assertEqual(0, self.residency.version)

    def test_one_that_is_no_more_counts_nowhere_whoever_lists_it(self):
        self.list(b='x')
        self.claim('x', 'a')
        self.residency.take_changed()
        self.residency.remove('x', 100.0)
        self.assertResidents(a='', b='')
        self.assertEqual({'a', 'b'}, self.residency.take_changed())
        self.assertEqual(1, self.residency.version)
        self.assertTrue(self.residency.certain)
        self.list(c='x', now=200.0)
        self.assertResidents(a='', b='', c='')

    def test_one_that_is_listed_long_after_is_there_all_the_same(self):
        self.list(b='x')
        self.residency.remove('x', 100.0)
        self.residency.expire(99.0 + claims.RELIST_SECONDS)
        self.assertResidents(b='')
        self.residency.take_changed()
        self.residency.expire(100.0 + claims.RELIST_SECONDS)
        self.assertResidents(b='x')
        self.assertEqual({'b'}, self.residency.take_changed())

    def test_one_that_is_placed_again_counts(self):
        self.list(b='x')
        self.residency.remove('x', 100.0)
        self.claim('x', 'a')
        self.assertResidents(a='x', b='')

    def test_one_that_is_back_on_its_source_counts_there(self):
        self.list(a='x', b='')
        self.claim('x', 'b')
        self.list(b='x')
        self.residency.take_changed()
        self.residency.settle('x', 'a', 0.0)
        self.assertResidents(a='x', b='')
        self.assertEqual({'a', 'b'}, self.residency.take_changed())

    def test_one_that_is_where_no_one_lists_it_is_claimed_there(self):
        self.claim('x', 'a')
        self.residency.settle('x', 'c', 0.0, expires=900.0)
        self.assertResidents(a='', c='x')
        self.residency.expire(899.0)
        self.assertResidents(c='x')
        self.residency.expire(900.0)
        self.assertResidents(c='')

    def test_the_law_of_its_flavor_is_taken_over(self):
        self.list(a='x')
        self.claim('x', 'a')
        self.residency.take_changed()
        self.residency.settle('x', 'a', 0.0, law=OTHER_LAW)
        self.assertEqual(OTHER_LAW, self.residency.assumed_law('x', 'a'))
        self.assertEqual({'a'}, self.residency.take_changed())
        version = self.residency.version
        self.residency.settle('x', 'a', 0.0, law=OTHER_LAW)
        self.assertEqual(version, self.residency.version)
        self.assertEqual(set(), self.residency.take_changed())


class TestAssumedLaw(ResidencyTestCase):

    def test_it_outlives_the_claim(self):
        self.claim('x', 'a')
        self.list(a='x')
        self.assertEqual(LAW, self.residency.assumed_law('x', 'a'))
        self.assertIsNone(self.residency.assumed_law('y', 'a'))

    def test_every_host_has_its_own_and_others_the_latest(self):
        self.claim('x', 'a')
        self.claim('x', 'b', law=OTHER_LAW)
        self.assertEqual(LAW, self.residency.assumed_law('x', 'a'))
        self.assertEqual(OTHER_LAW, self.residency.assumed_law('x', 'b'))
        self.assertEqual(OTHER_LAW, self.residency.assumed_law('x', 'c'))
        # Placed there again: now that is the latest.
        self.claim('x', 'a')
        self.assertEqual(LAW, self.residency.assumed_law('x', 'c'))

    def test_the_oldest_are_forgotten_when_there_are_too_many(self):
        with mock.patch.object(claims, 'MAX_ASSUMED', 3):
            for uuid in 'wxy':
                self.claim(uuid, 'a')
            self.claim('w', 'b')
            self.claim('z', 'a')
        # As long as the claim is open it is known from there.
        self.list(a='xyz', b='w')
        self.assertIsNone(self.residency.assumed_law('x', 'a'))
        for uuid in 'wyz':
            self.assertEqual(LAW, self.residency.assumed_law(uuid, 'a'))


HOSTS = ('a', 'b', 'c')
VMS = ('u', 'v', 'w', 'x', 'y')


class ResidencyMachine(stateful.RuleBasedStateMachine):
    """Boots, reports, moves, deletions and expiries in any order.

    Beside the Residency there is a plain model of the rules of
    reference/admission.rst, "Who is on a host": a list of words about each
    instance, newest last, and the claims.
    """

    def __init__(self):
        super().__init__()
        self.residency = claims.Residency()
        self.now = 0.0
        self.listed = {}
        self.words = collections.defaultdict(list)  # uuid -> hosts
        self.claims = {}         # uuid -> [host, expires, relisted]
        self.former = {}         # uuid -> what the open claim has replaced
        self.gone = {}           # uuid -> until when it is nowhere
        self.before = {}         # host -> residents when last asked

    @stateful.rule(seconds=st.sampled_from([0, 1, 60, 200, 700]))
    def time_passes(self, seconds):
        self.now += seconds
        expired = {one.instance_uuid
                   for one in self.residency.expire(self.now)}
        wanted = {uuid for uuid, one in self.claims.items()
                  if one[1] <= self.now}
        assert wanted == expired
        for uuid in wanted:
            self._close(uuid)
        self.gone = {uuid: until for uuid, until in self.gone.items()
                     if until > self.now}

    @stateful.rule(uuid=st.sampled_from(VMS), host=st.sampled_from(HOSTS),
                   seconds=st.sampled_from([50, 600]))
    def place(self, uuid, host, seconds):
        self.residency.claim(uuid, host, LAW, self.now + seconds, self.now)
        self.gone.pop(uuid, None)
        self.former[uuid] = self._close(uuid)
        self.claims[uuid] = [host, self.now + seconds,
                             uuid in self.listed.get(host, ())]

    @stateful.rule(host=st.sampled_from(HOSTS), uuids=st.sets(
        st.sampled_from(VMS)))
    def report(self, host, uuids):
        self.residency.observe(host, sorted(uuids), self.now)
        known = self.listed.get(host, set())
        self.listed[host] = uuids
        for uuid in known - uuids:
            self.words[uuid].remove(host)
            claim = self.claims.get(uuid)
            if claim and claim[0] == host and claim[2]:
                claim[1] = min(claim[1], self.now + claims.RELIST_SECONDS)
        for uuid in uuids - known:
            self.words[uuid].append(host)
            if self.claims.get(uuid, [None])[0] == host:
                self._close(uuid)

    def _close(self, uuid):
        """Return the open claim, which is none any more, or None."""
        self.former.pop(uuid, None)
        return self.claims.pop(uuid, None)

    @stateful.rule(uuid=st.sampled_from(VMS))
    def withdraw(self, uuid):
        self.residency.withdraw(uuid, self.now)
        former = self.former.get(uuid)
        if self._close(uuid) and former:
            # What it has replaced holds again, unless its host has it.
            host, expires, _ = former
            if expires > self.now and host not in self.words[uuid]:
                self.claims[uuid] = [host, expires, False]

    @stateful.rule(uuid=st.sampled_from(VMS))
    def remove(self, uuid):
        self.residency.remove(uuid, self.now)
        self._close(uuid)
        self.gone[uuid] = self.now + claims.RELIST_SECONDS

    @stateful.rule(uuid=st.sampled_from(VMS), host=st.sampled_from(HOSTS))
    def settle(self, uuid, host):
        """The database says where it is, and its demand is known."""
        before = self._wanted(uuid)
        if uuid in self.gone or before == host:
            return
        self.residency.settle(uuid, host, self.now, law=LAW,
                              expires=self.now + 300)
        self._close(uuid)
        if host in self.words[uuid]:
            self.words[uuid].remove(host)
            self.words[uuid].append(host)
        else:
            self.claims[uuid] = [host, self.now + 300, False]

    def _wanted(self, uuid):
        if uuid in self.claims:
            return self.claims[uuid][0]
        if uuid in self.gone:
            return None
        return self.words[uuid][-1] if self.words[uuid] else None

    @stateful.invariant()
    def everyone_is_where_the_newest_word_says(self):
        for uuid in VMS:
            assert self.residency.host_of(uuid) == self._wanted(uuid)

    @stateful.invariant()
    def nobody_is_on_two_hosts_or_twice_or_lost(self):
        found = [uuid for host in HOSTS
                 for uuid in self.residency.residents(host)]
        assert len(found) == len(set(found))
        assert set(found) == {
            uuid for uuid in VMS if self._wanted(uuid) is not None}
        for host in HOSTS:
            for uuid in self.residency.residents(host):
                assert self.residency.host_of(uuid) == host

    @stateful.invariant()
    def open_claims_are_those_that_no_host_has_taken_over(self):
        assert {one.instance_uuid: one.host
                for one in self.residency.claims} == {
                    uuid: one[0] for uuid, one in self.claims.items()}

    @stateful.invariant()
    def hosts_that_changed_are_told(self):
        steps = self.residency.take_steps()
        changed = self.residency.take_changed()
        for host, came_and_went in steps.items():
            assert host not in changed
            followed = set(self.before.get(host, []))
            for came, went in came_and_went:
                assert followed.isdisjoint(came)
                assert followed.issuperset(went)
                followed = (followed | set(came)) - set(went)
            self.before[host] = sorted(followed)
        for host in HOSTS:
            residents = sorted(self.residency.residents(host))
            if residents != self.before.get(host, []):
                assert host in changed, (host, changed)
            self.before[host] = residents


TestAnyOrder = ResidencyMachine.TestCase
TestAnyOrder.settings = hypothesis.settings(
    derandomize=True, deadline=None, max_examples=200,
    stateful_step_count=40)
