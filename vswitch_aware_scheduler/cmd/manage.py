# SPDX-License-Identifier: Apache-2.0
"""vswitch-manage: the operator's command.

Reads arguments and configuration, calls the package, prints the answer. The
manual has every sub-command with an example: cli/vswitch-manage.rst.
"""

import argparse
import dataclasses
import datetime
import logging
import math
import sys
import time

from oslo_config import cfg

from vswitch_aware_scheduler.cmd import deferred
from vswitch_aware_scheduler.cmd import terminal
from vswitch_aware_scheduler import exceptions
from vswitch_aware_scheduler import plain_text
from vswitch_aware_scheduler import telemetry
from vswitch_aware_scheduler.traffic import estimate
from vswitch_aware_scheduler.traffic import prior as traffic_prior
from vswitch_aware_scheduler.traffic import series as rate_series
from vswitch_aware_scheduler.vswitch import gateway as switch_gateway
from vswitch_aware_scheduler.vswitch import profile as switch_profile

# These take long to import, and only some sub-commands use them.
capacity = deferred.module('cmd.capacity')
compare = deferred.module('cmd.compare')
decisions = deferred.module('cmd.decisions')
evaluate = deferred.module('cmd.evaluate')
explain = deferred.module('cmd.explain')
feedback = deferred.module('admission.limit_feedback')
fleet = deferred.module('cmd.fleet')
hosts = deferred.module('cmd.hosts')
instances = deferred.module('cmd.instances')
migration = deferred.module('store.migration')
options = deferred.module('conf')
output = deferred.module('cmd.output')
placement = deferred.module('modeler.placement_inventory')
priors = deferred.module('modeler.priors')
report = deferred.module('cmd.report')
service = deferred.module('modeler.service')
size = deferred.module('cmd.size')
snapshot = deferred.module('store.snapshot')
store = deferred.module('store')

__all__ = ['ask', 'default_config_files', 'main']

PROG = 'vswitch-manage'

_RATES = ('egress_kbps', 'ingress_kbps', 'kpps')


# Arguments

class _Collect(argparse.Action):
    """Append to one list wherever the option is given.

    argparse's own 'append' would forget what stood before a sub-command.
    """

    def __call__(self, parser, namespace, values, option_string=None):
        self.const.append(values)
        setattr(namespace, self.dest, self.const)


def _seconds(text):
    """Return seconds UTC of a number or of an ISO 8601 date."""
    try:
        seconds = float(text)
        if math.isfinite(seconds):
            return seconds
    except ValueError:
        pass
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no time, wanted seconds since 1970 or a date such '
            f'as 2013-08-12T00:00:00 (UTC)') from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


def _parser():
    common = argparse.ArgumentParser(
        add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        '--config-file', metavar='PATH', action=_Collect, const=[],
        help='read options from this file; may be given several times'
    ).complete = terminal.FILE
    common.add_argument(
        '--store', metavar='URL',
        help='SQLAlchemy URL of the store, in place of store_url')
    common.add_argument(
        '-f', choices=('table', 'json', 'yaml', 'csv'), dest='output_format',
        help='print a table (the default), JSON, YAML or, of a list, CSV')
    common.add_argument(
        '--json', action='store_const', const='json', dest='output_format',
        help='the same as -f json')
    common.add_argument(
        '--debug', action='store_true',
        help='log all there is and show the traceback of an error')

    def add(parent, name, function, summary):
        parser = parent.add_parser(name, parents=[common], help=summary,
                                   description=terminal.sentence(summary))
        parser.set_defaults(function=function)
        return parser

    def add_list(parent, name, function, summary, *filters):
        parser = add(parent, name, function, summary)
        parser.add_later(
            lambda parser: output.add_list_arguments(parser, *filters))
        return parser

    def group(name, summary):
        parser = commands.add_parser(name, parents=[common], help=summary,
                                     description=terminal.sentence(summary))
        return parser.add_subparsers(metavar='COMMAND', required=True)

    top = deferred.Parser(
        prog=PROG, parents=[common],
        description='Look after the store of traffic models and the switch '
                    'profiles of vswitch_aware_scheduler.')
    top.add_argument('--version', action='version',
                     version=terminal.version(PROG))
    top.add_argument('--print-completion', action=terminal.PrintCompletion,
                     help='print the script that completes this command in '
                          'a shell')
    commands = top.add_subparsers(metavar='COMMAND', required=True)

    db = group('db', 'make the schema of the store and tell its version')
    sync = add(db, 'sync', _db_sync,
               'make the store, or bring its schema to the newest version')
    sync.add_argument('--version', metavar='REVISION',
                      help='stop at this version')
    add(db, 'version', _db_version, 'print the version of the schema')

    fit = add(commands, 'fit', _fit,
              'fit traffic models to telemetry and write them to the store')
    fit.add_argument('--telemetry', metavar='DRIVER', default='file',
                     help='name of a telemetry driver (default: file)')
    _add_file_arguments(fit)
    fit.add_argument('--start', type=_seconds, metavar='TIME',
                     help='first time to use: seconds UTC or ISO 8601')
    fit.add_argument('--end', type=_seconds, metavar='TIME',
                     help='first time not to use any more')

    add(commands, 'evaluate', _evaluate,
        'replay recorded traffic through our admission and others'
        ).add_later(lambda parser: evaluate.add_arguments(parser))

    add(commands, 'size', _size,
        'compute how many instances a host can have, or the hosts of a fleet'
        ).add_later(lambda parser: size.add_arguments(parser))

    add(commands, 'fleet', _fleet,
        'print what each host carries, and how likely it is overloaded'
        ).add_later(lambda parser: fleet.add_arguments(parser))

    add(commands, 'report', _report,
        'write an HTML page of the fleet, its risks and its models'
        ).add_later(lambda parser: report.add_arguments(parser))

    model = group('model', 'print stored traffic models')
    show = add(model, 'show', _model_show, 'print the model of one instance')
    show.add_argument('instance', metavar='UUID',
                      help='uuid of an instance, or its name in the list')
    add_list(model, 'list', _model_list, 'print what models there are',
             'host', 'project')

    prior = group('prior', 'print what is expected of unknown instances')
    add_list(prior, 'list', _prior_list, 'print what groups have a prior',
             'project')
    show = add(prior, 'show', _prior_show,
               'print the prior that an instance without a model counts by')
    show.add_argument('instance', metavar='UUID', nargs='?',
                      help='uuid of an instance, or the name of one that '
                           'has a model')
    show.add_argument('--flavor', metavar='NAME',
                      help='name of a flavor; without it that of the '
                           'instance, where the inventory has it')
    show.add_argument('--project', metavar='ID',
                      help='id of a project, together with --flavor or '
                           'alone')

    profile = group('profile', 'print and check switch profiles')
    add_list(profile, 'list', _profile_list,
             'print what switch profiles there are')
    show = add(profile, 'show', _profile_show, 'print one switch profile')
    show.add_argument('name', metavar='NAME')
    validate = add(profile, 'validate', _profile_validate,
                   'check a file of switch profiles')
    validate.add_argument('file', metavar='FILE').complete = terminal.FILE

    add(profile, 'export', _profile_export,
        'print a profile as options of Nova or Neutron'
        ).add_later(lambda parser: hosts.add_export_arguments(parser))

    host = group('host', 'tell and set which profile the switch of a host has')
    add(host, 'discover', _host_discover,
        'propose profiles by what the agents of Neutron tell'
        ).add_later(_add_discover_arguments)
    add_list(host, 'list', _host_list,
             'print the profiles of hosts in the store', 'host')
    add(host, 'set', _host_set, 'set the profile of a host by hand'
        ).add_later(lambda parser: hosts.add_set_arguments(parser))
    remove = add(host, 'remove', _host_remove,
                 'remove the profile of a host from the store')
    remove.add_argument('host', metavar='HOST')

    gateway = group('gateway', 'plan the mappings of VXLAN gateways')
    planned = add(gateway, 'plan', _gateway_plan,
                  'number the networks of silos and tell what each gateway '
                  'maps')
    planned.add_argument(
        'file', metavar='FILE',
        help='YAML file of gateways, silos and the networks of tenants')

    claim = group('claim', 'tell what schedulers have just placed')
    add_list(claim, 'list', _claim_list,
             'print what schedulers have placed and withdrawn lately', 'host')

    decision = group('decision', 'print how schedulers judged hosts')
    add_list(decision, 'list', _decision_list,
             'print the last decisions of all schedulers', 'host', 'project')
    show = add(decision, 'show', _decision_show,
               'print how the hosts were judged for an instance')
    show.add_argument('what', metavar='UUID|REQUEST',
                      help='uuid of an instance, or id of a request of Nova')
    against = add(decision, 'compare', _decision_compare,
                  'compare decisions with the traffic that was measured since')
    against.add_argument('--telemetry', metavar='DRIVER',
                         help='name of a telemetry driver (default: the '
                              'options of vswitch-modeler)')
    _add_file_arguments(against)
    against.add_argument('--start', type=_seconds, metavar='TIME',
                         help='first decision to use: seconds UTC or ISO '
                              '8601')
    against.add_argument('--end', type=_seconds, metavar='TIME',
                         help='first time not to use any more (default: now)')

    add(commands, 'explain', _explain,
        'judge the hosts for an instance now, and tell why'
        ).add_later(lambda parser: explain.add_arguments(parser))

    corrections = group('feedback', 'tell how limits are corrected')
    add_list(corrections, 'show', _feedback_show,
             'print what came of trials, and the limits that follow')

    strict = group('strict', "look after the strict mode's inventories")
    add_list(strict, 'show', _strict_show,
             'print what placement keeps of the hosts', 'host')
    disable = add(strict, 'disable', _strict_disable,
                  'take the inventories out of placement, and all that is '
                  'allocated of them')
    disable.add_argument(
        '--providers', action='store_true',
        help='take out the empty providers too, in two steps: the first '
             'call detaches them, one that is repeated after 15 minutes '
             'removes them')

    costs = group('capacity', 'fit what a packet costs a switch')
    add(costs, 'fit', _capacity_fit, 'fit a table of measured rates'
        ).add_later(lambda parser: capacity.add_fit_arguments(parser))
    add(costs, 'reproduce', _capacity_reproduce,
        'predict published figures from the rest of their tables'
        ).add_later(lambda parser: capacity.add_reproduce_arguments(parser))
    return top


def _add_file_arguments(parser):
    parser.add_argument('--path',
                        help='file or folder to read, for the driver "file" '
                             'and no other').complete = terminal.FILE
    parser.add_argument('--period-seconds', type=float, metavar='S',
                        help='sampling period of what the driver "file" reads '
                             '(default: inferred for each instance)')


def _add_discover_arguments(parser):
    hosts.add_discover_arguments(parser)
    output.add_list_arguments(parser, 'host')


def _options(arguments):
    """Return our options of the configuration files."""
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    # Without --config-file oslo.config looks for vswitch.conf in its usual
    # places, /etc/vswitch_aware_scheduler among them.
    conf([word for path in arguments.config_file
          for word in ('--config-file', path)],
         project='vswitch_aware_scheduler', prog='vswitch')
    group = conf[options.GROUP]
    # Ask for all, so that a bad value is told before any work is done.
    for name in group:
        group[name]
    if arguments.store is not None:
        conf.set_override('store_url', arguments.store, options.GROUP)
    # What the sub-commands read, one of them, of other groups.
    arguments.all_options = conf
    return group


# Output

def _time(seconds):
    return plain_text.iso_time(seconds) or '-'


def _number(value):
    return f'{value:.1f}' if value >= 1000 else f'{value:.4g}'


def _rate_cells(values, packets_known):
    """Return the cells of three rates; a hyphen for unknown packets."""
    return [*map(_number, values[:2]),
            _number(values[2]) if packets_known else '-']


def _by_rate(values, packets_known=True):
    """Return {name: rate}; None stands for packets that are not known."""
    found = dict(zip(_RATES, values))
    return found if packets_known else {**found, 'kpps': None}


def _packets_known(item):
    """Return whether a ModelSummary tells packets, as RateLaw tells it."""
    return item.peak[2] > 0 or not any(item.peak[:2])


def _say(text):
    terminal.say(PROG, text)


# Sub-commands: each takes the arguments and the options, prints its answer
# and returns the exit status.

def _db_sync(arguments, conf):
    if arguments.version == '':
        raise exceptions.InvalidInput(
            f"version: ''; expected one of {', '.join(migration.revisions())}")
    directory = migration.missing_directory(conf.store_url)
    before, after = migration.sync(conf.store_url, arguments.version,
                                   conf.store_timeout_seconds)
    if directory is not None:
        # Not on stdout, which is for --json.
        _say(f'made the directory {directory}, mode '
             f'{migration.DIRECTORY_MODE:04o}, owner '
             f'{migration.current_user()}: nova-scheduler and '
             f'vswitch-modeler have to run as that user')
    if output.print_answer(arguments, {'before': before, 'after': after}):
        return 0
    if before == after:
        terminal.print_line(f'The schema has version {after}: nothing to do.')
    else:
        terminal.print_line(
            f'The schema has version {after} now'
            + (f', it had {before}.' if before else '.'))
    return 0


def _db_version(arguments, conf):
    version = migration.version(conf.store_url, conf.store_timeout_seconds)
    newest = migration.revisions()[-1]
    generation = None
    if version == newest:
        generation = _store(conf).generation()
    if output.print_answer(arguments, {
            'version': version, 'newest': newest,
            'generation': generation and generation.number,
            'published_at': generation and generation.published_at,
            'published_at_iso': plain_text.iso_time(
                generation and generation.number
                and generation.published_at or None)}):
        return 0
    terminal.print_fields([
        ('Schema version', version or 'none: run "vswitch-manage db sync"'),
        ('Newest version', newest)] + ([] if generation is None else [
            ('Generation', generation.number),
            ('Published', _time(generation.published_at)
             if generation.number else 'nothing yet')]))
    return 0


def _store(conf):
    return store.Store(conf.store_url, conf.store_timeout_seconds)


def _made_store(conf):
    """Return the store; make it where there is no SQLite file or content."""
    found = _store(conf)
    try:
        found.generation()
    except exceptions.StoreMissing:
        if not migration.is_new_file(conf.store_url):
            raise
        migration.sync(conf.store_url,
                       timeout_seconds=conf.store_timeout_seconds)
        _say(f'made a new store: {found.url}')
    return found


def _telemetry_driver(arguments):
    """Return the driver, with its options of file and command line."""
    name = arguments.telemetry
    if name not in options.TELEMETRY_GROUPS:
        if name == 'file' and arguments.path is None:
            raise exceptions.InvalidInput(
                'path: not given; expected a file or a folder for the '
                'telemetry driver file: --path PATH')
        given = {'path': arguments.path,
                 'period_seconds': arguments.period_seconds}
        return telemetry.load_driver(name, **{
            key: value for key, value in given.items() if value is not None})
    group = options.TELEMETRY_GROUPS[name][0]
    for flag, value in (('path', arguments.path),
                        ('period-seconds', arguments.period_seconds)):
        if value is not None:
            raise exceptions.InvalidInput(
                f'--{flag} is {value}, wanted none: telemetry driver '
                f'{name} goes by the options in the group [{group}], such as '
                f'url')
    return service.make_driver(arguments.all_options, name)


def _fit(arguments, conf):
    began = time.monotonic()
    if None not in (arguments.start, arguments.end) \
            and arguments.start >= arguments.end:
        raise exceptions.InvalidInput(
            f'start: {arguments.start:.15g}; expected a time before the end, '
            f'which is {arguments.end:.15g}, in seconds since 1970')
    driver = _telemetry_driver(arguments)
    target = _made_store(conf)
    names = {item.uuid: item.name for item in driver.instances()}
    counted, fitted, unmodelled, refused = [], [], [], []
    refused_samples = rate_series.Refused()

    def refuse(instance_uuid, reason, error):
        refused.append({'instance_uuid': instance_uuid,
                        'name': names.get(instance_uuid), 'reason': reason,
                        'detail': str(error)})

    with terminal.progress('fitting') as progress:
        for series in driver.series(arguments.start, arguments.end,
                                    progress=progress):
            # What it counts with otherwise is not known here.
            series = series.at_least()
            refused_samples += series.refused
            reason = _refusal(series, conf.min_samples)
            try:
                counts = estimate.count_transitions(series)
            except exceptions.NotEnoughSamples as error:
                refuse(series.instance_uuid, reason, error)
                continue
            counted.append((series.instance_uuid, series.refused, reason,
                            counts))
    for (instance_uuid, refused_of_it, reason, one), model in zip(
            counted, estimate.fit_models(
                [counts for *_, counts in counted],
                min_samples=conf.min_samples,
                keys=[uuid for uuid, *_ in counted])):
        provenance = {'refused': refused_of_it,
                      'source': arguments.telemetry,
                      'name': names.get(instance_uuid)}
        if isinstance(model, exceptions.NotEnoughSamples):
            refuse(instance_uuid, reason, model)
            unmodelled.append(store.Unmodelled(instance_uuid, one,
                                               **provenance))
            continue
        fitted.append(store.StoredModel.from_counts(
            instance_uuid, model, one, **provenance))
    generation = _write_models(target, conf, fitted, unmodelled)
    groups = sum(one.instance_uuid is None for one in target.priors().values())
    seconds = time.monotonic() - began
    reasons = {}
    for item in refused:
        reasons[item['reason']] = reasons.get(item['reason'], 0) + 1
    if not output.print_answer(arguments, {
            'source': driver.source, 'store': target.url,
            'generation': generation.number, 'instances': len(names),
            'fitted': len(fitted), 'refused': len(refused),
            'reasons': reasons, 'refused_instances': refused,
            'refused_samples': refused_samples.to_dict(),
            'priors': groups, 'seconds': round(seconds, 3)}):
        terminal.print_fields([
            ('Telemetry', driver.source), ('Store', target.url),
            ('Generation', generation.number),
            ('Fitted', f'{len(fitted)} instances in {seconds:.1f} s'),
            ('Refused', f'{len(refused)} instances'
             + terminal.counted(reasons)),
            ('Priors', f'{groups} groups' + (
                '' if groups else f', as it takes models of '
                f'{traffic_prior.MIN_PEERS} instances')),
            ('Samples refused', str(refused_samples.total) + terminal.counted(
                {name: count for name, count
                 in refused_samples.to_dict().items() if count}))])
    if not fitted:
        _say('no instance has a history to fit a model to: nothing was '
             'written')
        return 1
    return 0


def _write_models(target, conf, fitted, unmodelled):
    """Write what was fitted, and the priors that follow, at once.

    :param unmodelled: what was counted of others; where they have a model in
        the store, that stays
    :returns: Generation
    """
    if not fitted:
        return target.generation()
    points = target.resume_points()
    unmodelled = [one for one in unmodelled
                  if one.instance_uuid not in points
                  or not points[one.instance_uuid].modelled]
    _, changed, gone = priors.plan(
        target, time.time(), conf.min_samples, models=fitted,
        unmodelled=unmodelled)
    return target.write(fitted, unmodelled=unmodelled, priors=changed,
                        remove_priors=gone)


def _evaluate(arguments, conf):
    with terminal.progress('evaluating') as progress:
        answer = evaluate.run(arguments, conf, progress)
    if not output.print_answer(arguments, answer):
        terminal.print_table(*evaluate.table(answer))
    return 0


def _refusal(series, min_samples):
    if not len(series):
        return 'no usable sample'
    if len(series) < min_samples:
        return f'fewer than {min_samples} samples'
    return 'no traffic'


def _model_list(arguments, conf):
    target = _store(conf)
    found = sorted(target.models(), key=lambda item: (
        item.name is None, output.natural(item.name or ''),
        item.instance_uuid))
    placements = target.placements()

    def placed(item, what):
        return getattr(placements.get(item.instance_uuid), what, None)

    # Peak of egress and ingress each: they need not be of one state.
    rows = [{
        'instance_uuid': item.instance_uuid, 'name': item.name,
        'samples': round(item.samples),
        'mean': _by_rate(item.mean, _packets_known(item)),
        'peak': _by_rate(item.peak, _packets_known(item)),
        'window_start': item.window_start,
        'window_end': item.window_end, 'source': item.source,
        'refused': item.refused.to_dict(),
        'updated_at': item.updated_at, **{
            what: placed(item, what)
            for what in ('host', 'flavor', 'project')}} for item in found]
    column = output.Column
    output.print_list(arguments, rows, [
        column('INSTANCE', 'instance_uuid'), column('NAME', 'name'),
        column('SAMPLES', 'samples'),
        column('MEAN EGRESS', 'mean.egress_kbps'),
        column('MEAN INGRESS', 'mean.ingress_kbps'),
        column('PEAK EGRESS', 'peak.egress_kbps'),
        column('PEAK INGRESS', 'peak.ingress_kbps'),
        column('FROM', 'window_start_iso'), column('TO', 'window_end_iso'),
        *(column(what.upper(), what)
          for what in (('host', 'project') if placements else ()))],
        'models', 'models; rates in kbit/s')
    return 0


def _model_show(arguments, conf):
    record = instances.find_model(_store(conf), arguments.instance)
    model, counts = record.model, record.counts
    correlation = counts and counts.correlation
    if output.print_answer(arguments, {
            'instance_uuid': record.instance_uuid, 'name': record.name,
            'states': len(model.rates), 'rates': model.rates.tolist(),
            'jump': model.jump.tolist(),
            'sojourn_seconds': model.sojourn_seconds.tolist(),
            'stationary': model.stationary.tolist(),
            # For readers of the version before.
            'regime_law': None,
            'low_states': model.low_states,
            'high_share': (None if model.high is None else float(
                model.stationary[model.low_states:].sum())),
            'high_slots': (None if model.high is None else
                           int(model.high.sum())),
            'mean': _by_rate(model.mean.tolist(), model.packets_known),
            'peak': _by_rate(model.peak.tolist(), model.packets_known),
            'packets_known': model.packets_known,
            'period_seconds': counts and counts.period_seconds,
            'sample_correlation': correlation,
            'window_start': record.window_start,
            'window_end': record.window_end,
            'samples': round(record.samples),
            'refused': record.refused.to_dict(), 'source': record.source,
            'updated_at': record.updated_at,
            'format_version': record.format_version}):
        return 0
    refused = {name: count for name, count
               in record.refused.to_dict().items() if count}

    def rates(values):
        packets = (f'{_number(values[2])} kpps' if model.packets_known
                   else 'packets unknown')
        return (f'egress {_number(values[0])} kbit/s, '
                f'ingress {_number(values[1])} kbit/s, {packets}')

    terminal.print_fields([
        ('Instance', record.instance_uuid), ('Name', record.name or '-'),
        ('Source', record.source), ('Sampling', _sampling(counts)),
        ('Window', f'{_time(record.window_start)} to '
                   f'{_time(record.window_end)}'),
        ('Samples', f'{record.samples:.0f}, refused {record.refused.total}'
         + terminal.counted(refused)),
        ('Updated', _time(record.updated_at)),
        ('Format version', record.format_version),
        ('Mean', rates(model.mean)), ('Peak', rates(model.peak)),
        ('High', '-' if model.high is None else
         f'{100 * model.stationary[model.low_states:].sum():.3g} % of the '
         f'time, {model.high.sum()} of {model.high.size} sampled slots')])
    states = range(len(model.rates))
    terminal.print_below(
        'States: rates, mean sojourn time, long-run share of time '
        '(stationary law), class')
    low_states = len(states) if model.low_states is None \
        else model.low_states
    terminal.print_table(
        ['STATE', 'EGRESS_KBPS', 'INGRESS_KBPS', 'KPPS', 'SOJOURN_SECONDS',
         'STATIONARY', 'CLASS'],
        [[i, *_rate_cells(model.rates[i], model.packets_known),
          _number(model.sojourn_seconds[i]), f'{model.stationary[i]:.6f}',
          'low' if i < low_states else 'high'] for i in states])
    terminal.print_below(
        'Jump matrix: probability that a state (row) is followed by '
        'another (column)')
    terminal.print_table(
        ['STATE', *map(str, states)],
        [[i, *(f'{p:.4f}' for p in model.jump[i])] for i in states])
    return 0


def _sampling(counts):
    """Say how often was measured, and what that may hide."""
    if counts is None:
        return '-'
    period = f'means over {_number(counts.period_seconds)} s'
    correlation = counts.correlation
    if correlation is None:
        return period
    text = f'{period}, correlation of successive samples {correlation:.2f}'
    if correlation >= estimate.LEAST_CORRELATION:
        return text
    return (f'{text}: rates change within {_number(counts.period_seconds)} '
            f's, and may be above the peak for shorter times')


def _prior_list(arguments, conf):
    found = [one for one in _store(conf).priors().values()
             if one.instance_uuid is None]
    found.sort(key=lambda one: [
        (name is None, output.natural(name or ''))
        for name in (one.flavor, one.project)])
    # No peaks: shrunk towards the fleet, all have that of the fleet.
    column = output.Column
    output.print_list(arguments, [{
        'flavor': one.flavor, 'project': one.project,
        'members': (int(one.members) if one.members.is_integer()
                    else one.members), 'mean': _by_rate(
            one.law.mean.tolist(), one.law.packets_known),
        'p99_kbps': _p99_kbps(one.law),
        'peak': _by_rate(one.law.peak.tolist(), one.law.packets_known),
        'updated_at': one.updated_at} for one in found], [
            column('FLAVOR', 'flavor', absent='any'),
            column('PROJECT', 'project', absent='any'),
            column('MEMBERS', 'members', '{:.0f}'.format),
            column('MEAN EGRESS', 'mean.egress_kbps'),
            column('MEAN INGRESS', 'mean.ingress_kbps'),
            column('P99', 'p99_kbps'), column('UPDATED', 'updated_at_iso')],
        'priors', 'priors; rates in kbit/s, P99 of both directions together')
    return 0


def _p99_kbps(law):
    """Return the rate that is not exceeded for 99 % of the time."""
    bandwidth = law.rates[:, :2].sum(axis=1)
    order = bandwidth.argsort()
    below = law.probabilities[order].cumsum()
    return float(bandwidth[order][(below < 0.99 - 1e-9).sum()])


def _prior_show(arguments, conf):
    target = _store(conf)
    uuid = None if arguments.instance is None else instances.find_uuid(
        target, arguments.instance)
    known = snapshot.Snapshot().updated(target.read_changes())
    found = known.prior(uuid, arguments.flavor, arguments.project)
    if found is None:
        raise exceptions.InvalidInput(
            f'store {target.url} has no prior for that, wanted one: it takes '
            f'models of {traffic_prior.MIN_PEERS} instances')
    law, of = found
    left_out = {
        kind: traffic_prior.share_above(law, policy.capacities)
        for kind, policy in service.make_kinds(conf).find(target).items()}
    remarks = [
        f'No instance has {what} {value!r}: that is how a new one counts.'
        for what, value, seen in instances.unseen_groups(
            target, arguments.flavor, arguments.project)]
    states = sorted(zip(law.rates.tolist(), law.probabilities.tolist()),
                    key=lambda state: sum(state[0][:2]))
    if output.print_answer(arguments, {
            'prior_of': of, 'remarks': remarks,
            'mean': _by_rate(law.mean.tolist(), law.packets_known),
            'above_capacity': left_out,
            # Calm and busy are for readers of the version before.
            'states': [{**_by_rate(rates, law.packets_known),
                        'probability': share, 'calm': share, 'busy': share}
                       for rates, share in states]}):
        return 0
    terminal.print_fields([
        ('Prior of', of), ('Mean egress', _number(law.mean[0])),
        ('Mean ingress', _number(law.mean[1])),
        *((f'Above hosts {kind}', f'{100 * share:.3g} % of the time'
           + (', left out there' if of != 'instance' and 0 < share
              <= traffic_prior.MOST_LEFT_OUT else ''))
          for kind, share in left_out.items())])
    for text in remarks:
        terminal.print_line(text)
    terminal.print_line()
    terminal.print_table(
        ['EGRESS_KBPS', 'INGRESS_KBPS', 'KPPS', 'PROBABILITY'],
        [[*_rate_cells(rates, law.packets_known), f'{share:.6f}']
         for rates, share in states])
    return 0


def _profile_list(arguments, conf):
    built_in = switch_profile.catalogue()
    found = switch_profile.profiles(conf.switch_profiles_file)

    def origin(name):
        if built_in.get(name) is found[name] or built_in.get(
                name) == found[name]:
            return 'built-in'
        return conf.switch_profiles_file

    def row(name, item):
        saturation = item.saturation_kbps_at()
        return {**item.to_dict(), 'origin': origin(name),
                'saturation_kbps_at_typical_packet':
                    saturation and round(saturation),
                'max_instances':
                    item.max_instances and item.max_instances.count}

    column = output.Column
    number = '{:.15g}'.format
    output.print_list(
        arguments, [row(name, item) for name, item in found.items()], [
            column('NAME', 'name'), column('SWITCH', 'switch'),
            column('ENCAPSULATION', 'encapsulation'),
            column('SATURATION_KBPS', 'saturation_kbps_at_typical_packet'),
            column('COUNTS', 'saturation_dimension'),
            column('PACKET_RATE_KPPS', 'packet_rate_kpps', number),
            column('LINE_RATE_KBPS', 'line_rate_kbps', number),
            column('MAX_INSTANCES', 'max_instances'),
            column('ORIGIN', 'origin')], 'profiles')
    return 0


def _profile_show(arguments, conf):
    found = switch_profile.profiles(conf.switch_profiles_file)
    item = switch_profile.named(arguments.name, found)
    stated = item.to_dict()
    limits = [{'name': limit.name, 'weights': list(limit.weights),
               'capacity': limit.capacity} for limit in item.limits()]
    saturation = item.saturation_kbps_at()
    cpu_mhz = saturation and item.cpu_mhz(saturation)
    if output.print_answer(arguments, {
            **stated, 'limits': limits, 'cpu_mhz_at_saturation': cpu_mhz}):
        return 0
    sources = stated.pop('sources', {})
    for key, value in stated.items():
        if isinstance(value, dict):
            value = ', '.join(
                f'{_plain(name)}: {_plain(one)}'
                for name, one in value.items())
        elif isinstance(value, float):
            value = f'{value:.15g}'
        terminal.print_line(f'{key}: {value}')
        if key in sources:
            terminal.print_line(f'    source: {sources[key]}')
    if cpu_mhz is not None:
        terminal.print_below(
            f'CPU that switching takes at the saturation of '
            f'{saturation:.0f} kbit/s: {cpu_mhz:.0f} MHz')
    terminal.print_below(
        'Limits on the sum of all instances: weights of egress kbit/s, '
        'ingress kbit/s and kpps')
    terminal.print_table(['LIMIT', 'EGRESS', 'INGRESS', 'PACKETS',
                          'CAPACITY'], [
        [limit['name'], *(f'{weight:g}' for weight in limit['weights']),
         f'{limit["capacity"]:.15g}'] for limit in limits])
    return 0


def _plain(value):
    return f'{value:.15g}' if isinstance(value, float) else str(value)


def _profile_validate(arguments, _conf):
    found = switch_profile.load_profiles(arguments.file)
    if not output.print_answer(arguments, {'file': arguments.file,
                                           'profiles': list(found)}):
        terminal.print_line(
            f'{arguments.file} is valid: {len(found)} profiles: '
            f'{", ".join(found)}')
    return 0


def _profile_export(arguments, conf):
    answer = hosts.export_(arguments, conf, lambda: _store(conf))
    if not output.print_answer(arguments, answer):
        terminal.print_text(answer['text'])
    return 0


def _gateway_plan(arguments, _conf):
    found = switch_gateway.plan(switch_gateway.load(arguments.file))
    answer = found.to_dict()
    if output.print_answer(arguments, answer):
        return 0
    terminal.print_table(
        ['TENANT', 'NETWORK', 'VNI', 'INTERFACE_GROUP', 'VLAN'],
        [[one['tenant'], one['network'], one['vni'], group, vlan]
         for one in answer['networks']
         for group, vlan in one['vlans'].items()])
    terminal.print_line()
    terminal.print_table(
        ['GATEWAY', 'SWITCH_BACK', 'MAPPINGS', 'ENTRIES', 'MAPPING_ENTRIES'],
        [[name, 'yes' if one['switch_back'] else 'no', len(one['mappings']),
          one['entries'], one['mapping_entries']]
         for name, one in answer['gateways'].items()])
    return 0


def _host_discover(arguments, conf):
    def opened():
        if arguments.apply:
            return _made_store(conf)
        return (None if migration.is_new_file(conf.store_url)
                else _store(conf))

    answer = hosts.discover(arguments, arguments.all_options, opened)
    output.print_list(arguments, answer['hosts'], hosts.discover_columns(),
                      'hosts', others={'applied': answer['applied']})
    if arguments.output_format not in (None, 'table'):
        return 0
    _print_remarks('Remarks', hosts.remarks(answer))
    if not arguments.apply:
        terminal.print_below(
            'Nothing was written: --apply writes what is new or changed')
    return 0


def _claim_list(arguments, conf):
    found = _store(conf).read_claims().claims
    column = output.Column
    output.print_list(arguments, [{
        'instance': one.instance_uuid, 'state': one.state,
        'host': one.host, 'source': one.source,
        'claimed_by': one.claimed_by, 'claimed_at': one.claimed_at,
        'seconds_left': one.seconds,
        'networks': (None if one.attachments is None
                     else one.attachments.to_data()),
        'mean': _by_rate(one.law.mean.tolist(), one.law.packets_known)}
        for one in found], [
            column('INSTANCE', 'instance'), column('STATE', 'state'),
            column('HOST', 'host'), column('SOURCE', 'source'),
            column('BY', 'claimed_by'), column('TOLD', 'claimed_at_iso'),
            column('LEFT', 'seconds_left', '{:.0f}'.format)],
        'claims', 'claims; seconds that they stay listed',
        belongs={'host': lambda row, host: host in (row['host'],
                                                    row['source'])})
    return 0


def _overload_key(times):
    return f'overload_x{times:g}'.replace('.', '_')


def _decision_list(arguments, conf):
    output.print_list(
        arguments, [decisions.row(one) for one in _store(conf).decisions()],
        decisions.COLUMNS, 'decisions', 'decisions, the newest first')
    return 0


def _decision_show(arguments, conf):
    found = decisions.find(_store(conf), arguments.what)
    if output.print_answer(arguments, {
            'decisions': [decisions.row(one) for one in found]}):
        return 0
    for number, one in enumerate(found):
        if number:
            terminal.print_line()
        decisions.print_one(one)
    return 0


def _decision_compare(arguments, conf):
    driver = (service.configured_driver(arguments.all_options)
              if arguments.telemetry is None else _telemetry_driver(arguments))
    with terminal.progress('reading traffic') as progress:
        answer = compare.run(arguments, arguments.all_options, _store(conf),
                             driver, progress)
    if not output.print_answer(arguments, answer):
        compare.print_answer(answer)
    return 0


def _explain(arguments, conf):
    with terminal.progress('judging') as progress:
        answer = explain.run(arguments, arguments.all_options, _store(conf),
                             progress)
    is_table = arguments.output_format in (None, 'table')
    if is_table:
        explain.print_head(answer)
    columns = explain.columns()
    rows, total = output.select(arguments, answer.pop('hosts'), columns)
    output.print_selected(
        arguments, rows, total, columns, 'hosts',
        'hosts: the admitted ones, then those nearest to fitting', answer)
    if is_table:
        explain.print_below(answer, rows)
    return 0


def _feedback_show(arguments, conf):
    outcomes = _store(conf).trial_outcomes()
    corrections = service.make_corrections(conf)
    found = []
    for kind, one in outcomes.items():
        limit = feedback.limit_of(kind)
        times = corrections.of_outcome(one)
        shares = {percent / 100: overload / days if days else None
                  for percent, overload, days in one.days}
        found.append({
            'hosts': kind, 'asked': limit, 'multiple': times,
            'in_force': min(limit * times, 1.0), 'until': one.until,
            'trials': [{'multiple': percent / 100, 'host_days': days,
                        'overload': overload / days if days else None}
                       for percent, overload, days in one.days],
            'host_days': next((days for percent, _, days in one.days
                               if percent == 100), 0.0),
            **{_overload_key(times): shares.get(times)
               for times in feedback.FACTORS}})
    column = output.Column
    output.print_list(arguments, found, [
        column('HOSTS', 'hosts'),
        column('IN_FORCE', 'in_force', '{:.3g}'.format),
        column('MULTIPLE', 'multiple', '{:.3g}'.format),
        column('HOST_DAYS', 'host_days', '{:.1f}'.format),
        *(column(f'OVERLOAD_X{times:g}', _overload_key(times),
                 '{:.2g}'.format)
          for times in feedback.FACTORS), column('UNTIL', 'until_iso')],
        'kinds', 'kinds of hosts' + (
            '' if conf.feedback else '; feedback is off: limits are as asked'),
        others={'feedback': conf.feedback})
    return 0


def _host_list(arguments, conf):
    found = _store(conf).host_profiles()
    output.print_list(arguments, [dataclasses.asdict(one) for one in found],
                      hosts.list_columns(), 'hosts')
    return 0


def _host_set(arguments, conf):
    record = hosts.set_(arguments, conf)
    generation = _made_store(conf).write(host_profiles=[record])
    return _host_written(arguments, record.host, generation)


def _host_remove(arguments, conf):
    target = _store(conf)
    if arguments.host not in [one.host for one in target.host_profiles()]:
        raise exceptions.InvalidInput(
            f'store {target.url} has no profile of host {arguments.host}; '
            f'"vswitch-manage host list" prints those it has')
    return _host_written(arguments, arguments.host,
                         target.write(remove_hosts=[arguments.host]))


def _host_written(arguments, host, generation):
    if not output.print_answer(arguments, {
            'host': host, 'generation': generation.number}):
        terminal.print_line(
            f'Host {host}: written as generation {generation.number}.')
    return 0


def _strict_show(arguments, conf):
    found = [dict(zip(('provider', 'total', 'reserved', 'used'), one))
             for one in service.make_keeper(
                 arguments.all_options).inventories()]
    for one in found:
        one['free'] = one['total'] - one['reserved'] - one['used']
    names = ['provider', 'total', 'reserved', 'used', 'free']
    output.print_list(arguments, found, [
        output.Column(name.upper(), name) for name in names], None,
        belongs={'host': lambda row, host: row['provider'] in (
            host, f'{host}:vswitch')})
    return 0


def _strict_disable(arguments, conf):
    if conf.strict:
        raise exceptions.InvalidInput(
            'strict of the group [vswitch_scheduler] is set, wanted it unset '
            'for vswitch-modeler and nova-scheduler first: they would go on')
    removed = dict(zip(
        ('inventories', 'allocations', 'providers', 'detached'),
        service.make_keeper(arguments.all_options).remove(
            arguments.providers)))
    if output.print_answer(arguments, removed):
        return 0
    terminal.print_line(
        f'Removed {removed["inventories"]} inventories, '
        f'{removed["allocations"]} allocations and '
        f'{removed["providers"]} providers.')
    if removed['detached']:
        terminal.print_line(
            f'Detached {removed["detached"]} providers: each nova-compute '
            f'still asks for them for a while. Repeat the command after '
            f'{placement.DETACHED_SECONDS / 60:.0f} minutes to remove them.')
    return 0


def _fleet(arguments, conf):
    found = fleet.Fleet(_store(conf), arguments.all_options)
    facts = {'generation': found.generation.number,
             'published_at': (found.generation.published_at
                              if found.generation.number else None),
             'policies_read_at': found.policies_read_at,
             'aggregates_read_at': found.aggregates_read_at,
             'inventory_seen_at': (found.inventory
                                   and found.inventory.seen_at),
             'remarks': found.remarks}
    if arguments.uplinks:
        output.print_list(arguments, found.uplink_rows(),
                          fleet.uplink_columns(), 'uplinks', 'uplinks',
                          others=facts)
    else:
        _print_hosts(arguments, found, facts)
    if arguments.output_format in (None, 'table'):
        _print_remarks('Remarks', found.remarks)
    return 0


def _print_hosts(arguments, found, facts):
    with terminal.progress('summing') as progress:
        rows = found.host_rows(arguments.host, progress)
    columns = fleet.host_columns(arguments.flavor is not None,
                                 any(row['uplinks'] for row in rows))
    # What takes long is computed of the rows that are printed, where it does
    # not decide which ones these are.
    rest = {'room': lambda rows: _add_room(arguments, found, rows, facts),
            'episodes_per_day': found.add_episodes}
    for key in list(rest):
        if key == arguments.sort or output.is_sorted_by(arguments, key):
            rest.pop(key)(rows)
    fleet.sort(rows, arguments.sort)
    rows, total = output.select(arguments, rows, columns)
    for add in rest.values():
        add(rows)
    one = None
    if arguments.host is not None:
        one = facts['instances'] = found.instance_rows(arguments.host)
    demand = facts.get('demand_by')
    output.print_selected(
        arguments, rows, total, columns, 'hosts', 'hosts' + (
            f'; room for instances whose demand is by {demand}'
            if demand else ''), others=facts)
    if one is not None and arguments.output_format in (None, 'table'):
        terminal.print_below('Instances, by what they add to the host')
        terminal.print_line()
        output.print_plain(one, fleet.instance_columns())


def _add_room(arguments, found, rows, facts):
    if arguments.flavor is None:
        for row in rows:
            row['room'] = None
        return
    with terminal.progress('searching') as progress:
        facts['demand_by'] = found.add_room(rows, arguments.flavor,
                                            arguments.project, progress)


def _capacity_fit(arguments, _conf):
    answer = capacity.fit(arguments)
    if output.print_answer(arguments, answer):
        return 0
    _print_tables(capacity.fit_tables(answer))
    terminal.print_below(
        f'Relative deviation of a row: '
        f'{answer["model"]["deviation"]:.1%}')
    if answer['median_error'] is not None:
        terminal.print_line(
            f'Median error of what was left out: '
            f'{answer["median_error"]:.1%}')
    _print_remarks('The table contradicts itself', answer['contradictions'])
    return 0


def _size(arguments, conf):
    with terminal.progress('sizing') as progress:
        answer = size.run(arguments, conf, lambda: _store(conf), progress)
    if output.print_answer(arguments, answer):
        return 0
    _print_tables(size.tables(answer))
    _print_remarks(*size.remarks(answer))
    return 0


def _report(arguments, conf):
    with terminal.progress('reading hosts') as progress:
        answer = report.write(arguments, conf, lambda: _store(conf), progress)
    if arguments.html == '-':
        return 0
    if output.print_answer(arguments, answer):
        return 0
    summary = answer['summary']
    terminal.print_line(
        f'Wrote {answer["file"]}: {summary["hosts"]} hosts, '
        f'{summary["above"]} of them above their limit, '
        f'{summary["instances"]} instances.')
    return 0


def _capacity_reproduce(arguments, _conf):
    answer = capacity.reproduce(arguments)
    if output.print_answer(arguments, answer):
        return 0
    _print_tables(capacity.reproduce_tables(answer))
    for table in answer['tables']:
        _print_remarks(f'{table["table"]} contradicts itself, or the model',
                       table['contradictions'] + table['remarks'])
    return 0


def _print_tables(tables):
    for number, (title, header, rows) in enumerate(tables):
        if number:
            terminal.print_line()
        terminal.print_line(title)
        terminal.print_table(header, rows)


def _print_remarks(title, sentences):
    if sentences:
        terminal.print_below(f'{title}:')
        for sentence in sentences:
            terminal.print_line(f'- {sentence}')


def default_config_files():
    """Return the files that are read where none is named."""
    return cfg.find_config_files('vswitch_aware_scheduler', 'vswitch')


def ask(words, config_files=()):
    """Return the :class:`.output.Answer` of a sub-command; print nothing.

    :param words: of the command line, without options that say what is
        printed
    :param config_files: paths
    :raises VSwitchError: when the sub-command fails
    """
    arguments = argparse.Namespace(
        config_file=list(config_files), store=None, output_format='json',
        debug=False, captured=output.Answer())
    _parser().parse_args(list(words), arguments)
    arguments.function(arguments, _options(arguments))
    return arguments.captured


def main(argv=None):
    """Run the command.

    :param argv: arguments without the program's name, None: the process's
    :returns: exit status: 0 done, 1 an error, which is told on stderr; a
        wrong command line exits with 2 by SystemExit
    """
    # Defaults come in here: a sub-command's would hide what stood before it.
    arguments = argparse.Namespace(config_file=[], store=None,
                                   output_format=None, debug=False)

    def command():
        _parser().parse_args(argv, arguments)
        if arguments.output_format == 'csv' and 'columns' not in arguments:
            raise exceptions.InvalidInput(
                'format: csv; expected table, json or yaml: this command '
                'prints no list')
        if arguments.debug:
            terminal.log_all()
        else:
            # What a library logs is told by the exception as well.
            logging.getLogger().addHandler(logging.NullHandler())
        return arguments.function(arguments, _options(arguments))

    return terminal.run(PROG, command, lambda: arguments.debug)


if __name__ == '__main__':
    sys.exit(main())
