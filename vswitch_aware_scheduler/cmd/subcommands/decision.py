# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage decision: prints how schedulers judged the last requests."""

from vswitch_aware_scheduler.admission import explanation
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import instances
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text

__all__ = ['COLUMNS', 'SUMMARY', 'add_arguments', 'find', 'print_one', 'row']

#: What it does.
SUMMARY = 'print which hosts schedulers accepted and refused, and why'

_column = output.Column

#: Columns of the list.
COLUMNS = [
    _column('DECIDED', 'decided_at_iso'), _column('INSTANCE', 'instance_uuid'),
    _column('FLAVOR', 'flavor'), _column('OUTCOME', 'outcome'),
    _column('HOST', 'host'), _column('HOSTS', 'hosts'),
    _column('ADMITTED', 'admitted'), _column('OBSERVED', 'observed'),
    _column('REFUSED', 'refused', lambda refused: ', '.join(
        f'{count} {check}' for check, count in refused.items()) or '-')]

#: Columns of the hosts that were nearest to fitting.
_NEAREST = ['HOST', 'CHECK', 'VALUE', 'LIMIT', 'REFUSED', 'WHY']


def add_arguments(parser):
    """Add the sub-commands of ``decision``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    output.add_list_arguments(parser.add_command(
        'list', 'print the last decisions of all schedulers', _list),
        'host', 'project')
    show = parser.add_command(
        'show', 'print which hosts were accepted and refused for an '
                'instance', _show)
    show.add_argument('what', metavar='UUID|REQUEST',
                      help='uuid of an instance, or id of a request of Nova')


def row(decision):
    """Return a Decision as a row of JSON.

    :param decision: Decision
    """
    closest = decision.nearest[0]['host'] if decision.nearest else None
    return {**vars(decision), 'closest': closest,
            'summary': explanation.line(
                decision.hosts, decision.refused,
                _refusal(decision.nearest[0]) if decision.nearest else None)}


def find(store, text):
    """Return the Decisions on an instance or a request, the newest first.

    :param store: Store
    :param text: uuid of an instance, name of an instance with a model, id of a
        request, or id of a decision
    :raises InvalidInput: if there are none
    """
    decisions = store.decisions(request_id=text) \
        or store.decisions(instance_uuid=text.lower()) \
        or store.decisions(decision_id=text.lower())
    if not decisions:
        try:
            decisions = store.decisions(
                instance_uuid=instances.find_uuid(store, text))
        except exceptions.InvalidInput:
            pass
    if not decisions:
        raise exceptions.InvalidInput(
            f'decision: {text!r}; expected the uuid of an instance or the id '
            f'of a request in the list that "vswitch-manage decision list" '
            f'prints')
    return decisions


def print_one(decision):
    """Print a Decision as text.

    :param decision: Decision
    """
    fields = row(decision)
    terminal.print_fields([
        ('Decided', plain_text.iso_time(decision.decided_at)),
        ('By', decision.decided_by),
        ('Request', decision.request_id or 'unknown'),
        ('Instance', decision.instance_uuid or 'unknown'),
        ('Flavor', decision.flavor or 'unknown'),
        ('Project', decision.project or 'unknown'),
        ('Demand by', decision.rule), ('Hosts', fields['summary']),
        ('Admitted', decision.admitted),
        ('Refused but observed', decision.observed),
        ('Outcome', decision.outcome if decision.host is None
         else f'{decision.outcome} on {decision.host}')] + (
             [] if decision.chosen is None else [
                 ('On that host', _chosen(decision.chosen))]))
    if decision.nearest:
        terminal.print_below('Refused hosts, the nearest to fitting first')
        terminal.print_table(_NEAREST, [
            [item['host'], item['check'], terminal.cell(item['value']),
             terminal.cell(item['limit']),
             'yes' if item['enforced'] else 'observed', item['text']]
            for item in decision.nearest])


def _chosen(chosen):
    check = chosen['check']
    limit = '' if chosen['limit'] is None \
        else f' (limit {chosen["limit"]:g})'
    return ((f'refused by {check}, observed; ' if check else '')
            + f'overload probability '
              f'{plain_text.chance(chosen["overload_probability"])}{limit}'
              f', average utilisation '
              f'{terminal.cell(chosen["utilisation"], ".3g")}')


def _refusal(item):
    return explanation.Refusal(**item)


def _list(arguments, conf):
    store = context.open_store(conf)
    query = {'host': arguments.host, 'project': arguments.project}
    # If the list is in order of time, only the printed rows are read.
    limit = None if arguments.sort_columns else arguments.limit
    rows, total = output.select(
        arguments,
        [row(decision) for decision in store.decisions(limit=limit, **query)],
        COLUMNS)
    if total == limit:
        total = store.count_decisions(**query)
    output.print_selected(arguments, rows, total, COLUMNS, 'decisions',
                          'decisions, the newest first')
    return 0


def _show(arguments, conf):
    decisions = find(context.open_store(conf), arguments.what)
    if output.print_answer(arguments, {
            'decisions': [row(decision) for decision in decisions]}):
        return 0
    for number, decision in enumerate(decisions):
        if number:
            terminal.print_line()
        print_one(decision)
    return 0
