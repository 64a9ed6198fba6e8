# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage explain: prints how each host is judged for an instance.

Reads only the store: the inventory and the policies that the modeler wrote.
Computes tables and explanations with the code of the scheduler.
"""

import argparse
import bisect
import collections
import dataclasses

import numpy as np

from vswitch_aware_scheduler import admission
from vswitch_aware_scheduler.admission import demand as demand_rules
from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler.cmd import base
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import rates
from vswitch_aware_scheduler.cmd.subcommands import fleet as fleet_command
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import conf as options
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.traffic import rate_law
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments

__all__ = ['Explain', 'run']

#: Number of hosts nearest to fitting for which the command computes which
#: share of the demand would fit and how many instances have to leave.
DETAILED = 3

#: Two overload probabilities are equal if they differ by a smaller share.
_SAME = 1e-3

#: Number of bisections of the share of the demand: a precision of one
#: thousandth.
_HALVINGS = 10


@dataclasses.dataclass(frozen=True)
class _Subject:
    """The instance that is judged.

    :ivar attachments: Attachments
    :ivar uuid: uuid of the instance, or None for a new one
    """

    uuid: str | None
    flavor: str | None
    project: str | None
    demand: demand_rules.Demand
    attachments: vswitch_attachments.Attachments


def run(arguments, conf, store, progress=None):
    """Return the answer as a dictionary; ``hosts`` is a list of rows.

    :param conf: ConfigOpts with the options of this package
    :param store: Store
    :param progress: None, or callable(done, total)
    :raises InvalidInput: if the requested host is unknown
    """
    fleet, head = fleet_command.open_view(store, conf[options.GROUP])
    subject = _subject(arguments, fleet, head['remarks'])
    hosts = sorted(fleet.policies, key=base.natural)
    fleet_command.check_host(fleet, arguments.host, 'vswitch-manage fleet')
    judged = _Judged(fleet, subject, hosts, progress)
    assessment = judged.assessment
    counts = explanation.counts(assessment)
    nearest = explanation.nearest(assessment, most=max(DETAILED, 1))
    detailed = {refusal.host for refusal in nearest} | {arguments.host}
    rows = [judged.row(i, host in detailed)
            for i, host in enumerate(hosts)]
    order = {refusal.host: number for number, refusal in enumerate(
        explanation.nearest(assessment, most=len(hosts)))}
    rows.sort(key=lambda row: (not row['admitted'], order.get(
        row['host'], -1), row['overload_after'] or 0.0,
        base.natural(row['host'])))
    law = subject.demand.law_on(None)
    return {
        'instance_uuid': subject.uuid, 'flavor': subject.flavor,
        'project': subject.project, 'rule': subject.demand.rule,
        'mean': rates.by_name(law.mean.tolist(), law.packets_known),
        'peak': rates.by_name(law.peak.tolist(), law.packets_known),
        'summary': explanation.line(len(hosts), counts,
                                    nearest[0] if nearest else None),
        'admitted': int(assessment.admitted.sum()), 'refused': counts,
        'nearest': nearest[0].host if nearest else None,
        **head, 'hosts': rows}


# The instance.

def _subject(arguments, fleet, remarks):
    uuid, flavor, project = None, arguments.flavor, arguments.of_project
    if arguments.server is not None:
        uuid = instances.find_uuid(fleet.store, arguments.server)
        _, flavor, project = _placement(fleet, uuid, remarks)
        project = arguments.of_project or project
    attachments = uuid and fleet.snapshot.attachments(uuid)
    if arguments.networks:
        attachments = vswitch_attachments.Attachments(
            tuple(arguments.networks), (),
            attachments.virtual_functions if attachments else 0)
    return _Subject(uuid, flavor, project,
                    _demand(fleet, uuid, flavor, project, remarks),
                    attachments or vswitch_attachments.UNKNOWN)


def _placement(fleet, uuid, remarks):
    """Return (host, flavor, project) of an instance, None if unknown."""
    placed = fleet.snapshot.placement(uuid)
    if placed is not None:
        return placed
    # Nova found no host for the instance, or has deleted it.
    decisions = fleet.store.decisions(instance_uuid=uuid, limit=1)
    if decisions:
        return None, decisions[0].flavor, decisions[0].project
    remarks.append(
        f'neither the inventory nor a decision has instance {uuid}: its '
        f'flavor and project are not known')
    return None, None, None


def _demand(fleet, uuid, flavor, project, remarks):
    """Return the Demand of the instance, as a scheduler does."""
    def report(name, problem):
        if problem is not None:
            remarks.append(f'flavor {name}: {problem}')

    demand = fleet.demand(uuid, flavor, project, report)
    if demand.kind != demand_rules.MODEL and flavor is not None \
            and flavor not in fleet.flavors:
        remarks.append(
            f'the store has no flavor {flavor!r}: it is treated as a flavor '
            f'without extra specs')
    return demand


# How hosts are judged

class _Judged:
    """All hosts of a fleet, judged for an instance.

    :param fleet: FleetView
    :param subject: _Subject
    :param hosts: list of names
    :param progress: None, or callable(done, total)
    """

    def __init__(self, fleet, subject, hosts, progress=None):
        self._fleet, self._subject = fleet, subject
        self._policies = [fleet.policies[host] for host in hosts]
        # Hosts without their uplinks, and uplinks alone: to separate their
        # numbers.
        fleet.loads(hosts)
        self._table = self._own = fleet.host_table
        self._uplinks = fleet.uplink_table
        names = {uplink.name for policy in self._policies
                 for uplink in policy.uplinks}
        if names:
            fleet.uplink_loads(sorted(names))
            self._table = admission.LoadTable(
                attachments=fleet.snapshot.attachments, debts=fleet.debts)
            for host, policy in zip(hosts, self._policies):
                self._table.describe(host, policy, fleet.laws(host))
        self._laws = [subject.demand.law_on(policy)
                      for policy in self._policies]
        if progress is not None:
            progress(1, 3)
        self.assessment = self._assess(self._table, hosts, self._laws)
        self._after = self.assessment if self._own is self._table \
            else self._assess(self._own, hosts, self._laws)
        if progress is not None:
            progress(2, 3)
        self._before = self._assess(self._own, hosts,
                                    [rate_law.SILENT] * len(hosts))

    def _assess(self, table, names, laws):
        return table.assess_each(table.rows_of(names), laws,
                                 self._subject.uuid,
                                 self._subject.attachments,
                                 self._subject.project)

    def row(self, i, detailed):
        """Return how a host is judged, as a dictionary.

        :param i: position of the host
        :param detailed: whether to compute which changes would make the
            instance fit
        """
        assessment, policy = self.assessment, self._policies[i]
        host = assessment.host(i)
        admitted = bool(assessment.admitted[i])
        value, limit = assessment.decisive(i) or (None, None)
        residents = self._table.residents(host)
        rules = [rule for _, rule
                 in self._fleet.demands(host).values()]
        after, before = self._after, self._before
        has_profile = policy.profile is not None
        return {
            'host': host, 'admitted': admitted, 'judged': policy.judged,
            'enforced': policy.enforced,
            'passes': bool(assessment.passing[i]),
            'check': None if admitted else assessment.check(i),
            'value': value, 'limit': limit, 'unit': assessment.unit(i),
            'text': assessment.explain(i),
            'profile': policy.profile.name if has_profile else None,
            'origins': self._fleet.origins.get(host, {}),
            'is_there': self._subject.uuid in residents,
            'instances': len(residents), 'rules': dict(
                collections.Counter(rules)),
            **_before_and_after(before, after, i, has_profile),
            'asked_limit': None if after.limit(i) is None
            else policy.overload_probability,
            'prediction_margin': policy.prediction_margin,
            'checks': list(self._checks(i)) if policy.judged else [],
            'uplinks': [self._uplink(i, uplink) for uplink in policy.uplinks],
            'if_independent': self._if_independent(i)
            if detailed and has_profile else None,
            'fits_if': [] if admitted else list(
                self._fits_if(i, detailed))}

    def _if_independent(self, i):
        """Return the overload probabilities if instances were independent.

        The filter decides with other probabilities, which are higher if
        instances are busy at the same times.

        :returns: {'before': without the instance, 'after': with it}
        """
        host = self._after.host(i)
        table = admission.LoadTable()
        table.describe(host, self._own.policy(host), {
            uuid: law.independent()
            for uuid, law in self._own.residents(host).items()})
        return {when: _number(table.assess_each(
            table.rows_of([host]), [law], self._subject.uuid,
            self._subject.attachments).overload_probability[0])
            for when, law in (('before', rate_law.SILENT),
                              ('after', self._laws[i].independent()))}

    def _checks(self, i):
        """Yield the checks of a host without its uplinks, in their order."""
        policy, after, before = self._policies[i], self._after, self._before
        has_profile = policy.profile is not None
        yield {'check': 'profile', 'passes': has_profile
               or policy.pass_unknown}
        if not has_profile:
            return
        for unit, count_before, added, limit in after.counts(i):
            count_after = count_before + added
            yield {'check': 'virtual functions' if unit.startswith('virtual')
                   else 'tunnels', 'unit': unit, 'before': count_before,
                   'adds': added, 'after': count_after, 'limit': limit,
                   'passes': not added or count_after <= limit}
        for unit, _, _, peak, limit in after.loads(i):
            yield {'check': 'peak', 'unit': unit, 'adds': peak,
                   'limit': _number(limit),
                   'passes': peak <= limit * (1 + 1e-9)}
        decides = policy.policy == admission.AVERAGE
        for (unit, mean, capacity, _, _), (_, mean_before, *_) in zip(
                after.loads(i), before.loads(i)):
            yield {'check': 'average', 'unit': unit, 'before': mean_before,
                   'adds': mean - mean_before, 'after': mean,
                   'limit': _number(capacity), 'passes':
                   None if not decides else mean <= capacity * (1 + 1e-9)}
        if not decides:
            yield {'check': 'overload probability',
                   'before': float(before.overload_probability[i]),
                   'after': float(after.overload_probability[i]),
                   'limit': after.limit(i), 'passes': self._keeps_limit(i)}
        debt = self._fleet.debts.get(
            (model_store.HOST, after.host(i)))
        if debt is not None:
            yield {'check': 'error budget', 'unit': 'days',
                   'before': -debt.days,
                   'passes': after.reason[i] != admission.DEBT}

    def _keeps_limit(self, i):
        """Return whether a host meets its limit of overload, or None.

        Only the first check that refuses a host is known. For a host that an
        earlier check refuses, the result is unknown.
        """
        reason, limit = self._after.reason[i], self._after.limit(i)
        if reason not in (admission.TOO_MANY, admission.PEAK):
            return bool(reason != admission.OVERLOAD)
        # With a limit of 0, peaks are added, not probabilities.
        return not self._after.above[i] if limit else None

    def _uplink(self, i, uplink):
        """Return how an uplink of a host is judged."""
        name = uplink.name
        before, after = (self._uplinks.assess_each(
            self._uplinks.rows_of([name]), [law], self._subject.uuid,
            self._subject.attachments.all_tunnelled)
            for law in (rate_law.SILENT, self._laws[i]))
        return {
            'uplink': name, 'admitted': bool(after.admitted[0]),
            'instances': len(self._uplinks.residents(name)),
            **_before_and_after(before, after, 0), 'text': after.explain(0)}

    # Changes that would make the instance fit.

    def _fits_if(self, i, detailed):
        """Yield in words what would make the instance fit on a host."""
        assessment = self.assessment
        host, reason = assessment.host(i), assessment.reason[i]
        numbers = assessment.decisive(i)
        if reason == admission.DEBT:
            days = self._fleet.debts[model_store.HOST, host].days
            yield (f'the host is in use for {min(days, 3.0):.3g} days without '
                   f'overload, or no other host passes, or error_budgets is '
                   f'false')
            return
        if reason == admission.GIANT:
            yield ('the instance that exceeds the capacity leaves, or no '
                   'other host passes')
            return
        if reason == admission.NO_PROFILE:
            yield ('the host has a switch profile ("vswitch-manage host '
                   'set"), or unknown_host_policy is pass')
            return
        if numbers is None:
            return
        value, limit = numbers
        most, least = (base.amount(number, assessment.unit(i))
                       for number in (limit, value))
        if reason == admission.TOO_MANY:
            yield (f'the limit of {limit:g} is at least {least}, or '
                   f'{value - limit:g} fewer are on the host')
            return
        if reason == admission.PEAK:
            yield (f'its peak is at most {most}, or one instance may have '
                   f'{least} on the host')
        elif reason == admission.MEAN:
            yield f'the capacity is at least {least}'
        elif reason == admission.OVERLOAD:
            yield (f'overload_probability is at least '
                   f'{value * self._policies[i].prediction_margin:.3g}')
        elif reason == admission.UPLINK:
            yield f'its uplink may have {least} instead of {most}'
        if not detailed:
            return
        share = self._share(host, self._laws[i])
        if share:
            yield f'it demands at most {100 * share:.1f} % of its rates'
        if reason in (admission.MEAN, admission.OVERLOAD):
            number = self._departures(i)
            if number is not None:
                yield (f'the {number} largest of its '
                       f'{len(self._own.residents(host))} instances leave')

    def _share(self, host, law):
        """Return the largest share of the demand that fits, 0 for none."""
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            scaled = rate_law.RateLaw.from_arrays(
                law.probabilities, law.rates * middle, law.at_instants)
            if self._assess(self._table, [host], [scaled]).admitted[0]:
                low = middle
            else:
                high = middle
        return low

    def _departures(self, i):
        """Return how many instances have to leave, the largest ones first."""
        host = self._after.host(i)
        policy = self._own.policy(host)
        residents = sorted(
            ((uuid, law) for uuid, law in self._own.residents(host).items()
             if uuid != self._subject.uuid),
            key=lambda item: -float(item[1].mean[:2].sum()))

        def fits_without(number):
            table = admission.LoadTable()
            table.describe(host, policy, dict(residents[number:]))
            return bool(table.assess([table.row(host)], self._laws[i])
                        .reason[0] in (admission.ADMITTED, admission.TOO_MANY))

        number = bisect.bisect_left(range(len(residents)), True,
                                    key=fits_without)
        return number if fits_without(number) else None


def _before_and_after(before, after, i, is_known=True):
    """Return the numbers of a row of two Assessments."""
    return {**{f'{name}_{when}': _number(values[i], is_known)
               for name, both in (
                   ('utilisation', (before.utilisation, after.utilisation)),
                   ('overload', (before.overload_probability,
                                 after.overload_probability)))
               for when, values in zip(('before', 'after'), both)},
            'overload_limit': after.limit(i)}


def _number(value, is_known=True):
    """Return a number as JSON has it, or None if it is not finite."""
    return float(value) if is_known and np.isfinite(value) else None


# For people

def _share(value):
    return f'{100 * value:.1f}%'


_column = base.Column

_CHECKS = [
    _column('CHECK', 'check'), _column('BEFORE', 'before'),
    _column('ADDS', 'adds'), _column('WITH_IT', 'after'),
    _column('LIMIT', 'limit'),
    _column('PASSES', 'passes', lambda passes: 'yes' if passes else 'NO')]


class Explain(base.List):
    """Print which hosts would accept an instance now, and why."""

    rows_key = 'hosts'
    below = 'hosts: the admitted ones, then those nearest to fitting'
    filters = ('host',)
    columns = [
        _column('HOST', 'host'), _column('PROFILE', 'profile'),
        _column('VMS', 'instances'),
        _column('USED', 'utilisation_before', _share),
        _column('USED WITH IT', 'utilisation_after', _share),
        _column('P(OVERLOAD)', 'overload_before', plain_text.chance),
        _column('P WITH IT', 'overload_after', plain_text.chance),
        _column('LIMIT', 'overload_limit', '{:.3g}'.format),
        _column('REFUSED BY', 'check', absent='no check'),
        _column('VALUE', 'value'), _column('OF', 'limit')]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument('--server', metavar='SERVER',
                           help='uuid or name of an existing instance')
        which.add_argument('--flavor', metavar='NAME',
                           help='name of the flavor of a new instance')
        parser.add_argument('--project', metavar='ID', dest='of_project',
                            help='id of the project of the new instance')
        parser.add_argument('--network', metavar='ID', action='append',
                            dest='networks', default=[],
                            help='id of a network that the instance is '
                                 'attached to; may be given several times')

    def answer(self, arguments: argparse.Namespace) -> dict:
        """Return the result of :func:`run`."""
        with terminal.progress('judging') as progress:
            return run(arguments, self.all_options, self.store, progress)

    def complete(self, arguments: argparse.Namespace, rows: list,
                 answer: dict) -> None:
        """Add units to the numbers of a table."""
        if arguments.formatter == 'table':
            rows[:] = [_with_units(row, ('value', 'limit')) for row in rows]

    def describe(self, answer: dict, rows: list) -> None:
        """Print the instance, and how the only or nearest host is judged."""
        terminal.print_line()
        terminal.print_fields(list(zip(*base.fields_of({
            name: answer[name] for name in (
                'instance_uuid', 'flavor', 'project', 'rule', 'mean', 'peak',
                'aggregates_read_at', 'published_at',
                'admitted', 'summary')}))))
        for row in rows:
            if len(rows) == 1:
                _print_host(row)
            if row['fits_if'] and (len(rows) == 1
                                   or row['host'] == answer['nearest']):
                terminal.print_remarks(f'It would fit on {row["host"]} if',
                                       row['fits_if'])
        terminal.print_remarks('Remarks', answer['remarks'])


def _with_units(row, keys):
    return {**row, **{key: base.amount(row[key], row.get('unit'))
                      for key in keys if row.get(key) is not None}}


def _print_host(row):
    terminal.print_line()
    terminal.print_fields(list(zip(*base.fields_of({
        'why': row['text'], 'policy_by': row['origins'],
        'instances_by': row['rules'],
        **{name: row[name] for name in (
            'is_there', 'overload_limit', 'asked_limit', 'prediction_margin',
            'enforced')},
        **({'if_independent': row['if_independent']}
           if _busy_together(row) else {})}))))
    terminal.print_line()
    terminal.print_table(*base.table_of([*(
        _with_units(check, ('before', 'adds', 'after', 'limit'))
        for check in row['checks']), *(
        {'check': f'uplink {uplink["uplink"]}',
         'before': uplink['overload_before'],
         'after': uplink['overload_after'],
         'limit': uplink['overload_limit'], 'passes': uplink['admitted']}
        for uplink in row['uplinks'])], _CHECKS))


def _busy_together(row):
    """Return whether instances are busy at the same times."""
    independent = row['if_independent']
    return independent is not None and None not in independent.values() \
        and any(abs(row[f'overload_{when}'] - value) > _SAME * value
                for when, value in independent.items())
