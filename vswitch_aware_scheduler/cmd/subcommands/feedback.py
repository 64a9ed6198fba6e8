# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage feedback: prints how limits are corrected."""

from vswitch_aware_scheduler.admission import limit_feedback
from vswitch_aware_scheduler.cmd import context
from vswitch_aware_scheduler.cmd import output
from vswitch_aware_scheduler.modeler import service

__all__ = ['add_arguments']


def add_arguments(parser):
    """Add the sub-command of ``feedback``.

    :param parser: :class:`~vswitch_aware_scheduler.cmd.deferred.Parser`
    """
    output.add_list_arguments(parser.add_command(
        'show', 'print the outcomes of trials and the resulting limits',
        _show))


def _show(arguments, conf):
    outcomes = context.open_store(conf).trial_outcomes()
    corrections = service.make_corrections(conf)
    rows = []
    for kind, outcome in outcomes.items():
        limit = limit_feedback.limit_of(kind)
        times = corrections.of_outcome(outcome)
        shares = {percent / 100: overload / days if days else None
                  for percent, overload, days in outcome.days}
        rows.append({
            'hosts': kind, 'asked': limit, 'multiple': times,
            'in_force': min(limit * times, 1.0), 'until': outcome.until,
            'trials': [{'multiple': percent / 100, 'host_days': days,
                        'overload': overload / days if days else None}
                       for percent, overload, days in outcome.days],
            'host_days': next((days for percent, _, days in outcome.days
                               if percent == 100), 0.0),
            **{_overload_key(times): shares.get(times)
               for times in limit_feedback.FACTORS}})
    column = output.Column
    output.print_list(arguments, rows, [
        column('HOSTS', 'hosts'),
        column('IN_FORCE', 'in_force', '{:.3g}'.format),
        column('MULTIPLE', 'multiple', '{:.3g}'.format),
        column('HOST_DAYS', 'host_days', '{:.1f}'.format),
        *(column(f'OVERLOAD_X{times:g}', _overload_key(times),
                 '{:.2g}'.format)
          for times in limit_feedback.FACTORS), column('UNTIL', 'until_iso')],
        'kinds', 'kinds of hosts' + (
            '' if conf.feedback
            else '; feedback is off: limits are not corrected'),
        other_keys={'feedback': conf.feedback})
    return 0


def _overload_key(times):
    return f'overload_x{times:g}'.replace('.', '_')
