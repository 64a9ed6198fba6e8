# SPDX-License-Identifier: Apache-2.0
"""Random operations under faults, and whether the workers count rightly.

The operations come in parts, each with one kind of fault. After each part
and some quiet the auditor compares what each worker counts with what the
databases of Nova's cells have.
"""

import collections
import concurrent.futures
import contextlib
import glob
import itertools
import random
import signal
import threading
import time

from keystoneauth1 import exceptions as ks_exceptions
from openstack import exceptions as sdk_exceptions

from tests.cloud import scenarios
from tests.cloud import services
from tests.fakes import stepped_clock

#: Most operations of a part, and how many run at once.
PART = 100
AT_ONCE = 12

#: Longest wait for an operation.
OPERATION_SECONDS = 180.0

#: Time without an operation before the workers are compared, and the longest
#: wait for Nova to end what it has begun.
QUIET_SECONDS = 10.0
END_SECONDS = 240.0

#: How long the database of a cell is paused.
PAUSE_SECONDS = 60.0

#: Share of all that hosts carry which the instances of a part take: in the
#: roomy parts no request has to be refused.
ROOMY, TIGHT = .4, .9

#: A hook takes no longer of a thread than this.
MOST_HOOK_SECONDS = .1

#: Processes whose clock is stepped.
_STEPPED = ('scheduler-1', 'compute-c2')

FLAVORS = ('small', 'medium', 'large')
_KBPS = {'small': 1_000, 'medium': 2_000, 'large': 4_000}


def options_of_cloud(clock):
    """Return what a Cloud needs so that its clocks can be stepped.

    :param clock: SteppedClock
    """
    return {
        'options': {
            # With a clock that is an hour off, Nova would report all
            # computes as down. A test that kills a compute says so.
            'service_down_time': 100_000,
            # With it a deletion is a soft one.
            'reclaim_instance_interval': 100_000},
        'environments': dict.fromkeys(_STEPPED, clock.environment)}


class Refused(Exception):
    """Nova has found no host."""


class Operations:
    """Makes the operations and the faults, and tells what came of them.

    :param stage: :class:`~.scenarios.Stage`
    :param judge: :class:`~.auditor.Auditor`
    :param clock: that of :func:`options_of_cloud`
    :param seed: of the operations
    """

    def __init__(self, stage, judge, clock, seed):
        self._stage, self._judge, self._clock = stage, judge, clock
        self._openstack = stage.cloud.openstack
        self._compute = stage.client.compute
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._idle = {}          # uuid -> (server, name of its flavor)
        self._lock = threading.Lock()
        self._demands = {}       # number of an operation under way -> kbit/s
        self._overlapping = {}   # number -> kbit/s of all since it began
        self._down = set()       # hosts that are forced down
        self._paused = threading.Event()
        self._image = stage.client.image()
        stage.flavors['medium'] = stage.client.flavor(
            'medium', egress_kbps=_KBPS['medium'])
        self.outcomes = collections.Counter()
        self.failures = []       # messages of what was not to be
        self._read = {}          # file of hook times -> bytes so far
        self.wrongly_refused = []
        self.refused = self.judged = 0
        self.samples = self.samples_above = self.samples_of_alternates = 0
        self._never_ended = set()

    FAULTS = ('nothing', 'compute_killed', 'cell_paused', 'scheduler_killed',
              'clock_ahead', 'clock_behind')

    def play(self, count):
        """Make so many operations; yield a line for each part.

        Parts are smaller if there would not be one for each fault.
        """
        size = max(1, min(PART, count // len(self.FAULTS)))
        for number, part in enumerate(range(0, count, size)):
            fault = self.FAULTS[number % len(self.FAULTS)]
            target = TIGHT if number // len(self.FAULTS) % 2 else ROOMY
            yield self._part(fault, target, min(size, count - part))

    def _part(self, fault, target, count):
        began = time.monotonic()
        before = collections.Counter(self.outcomes)
        samples = (self.samples, self.samples_above,
                   self.samples_of_alternates)
        wrongly_refused = len(self.wrongly_refused)
        self.hook_times()
        ended = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(ended,))
        sampler.start()
        plans = [self._random.random() for _ in range(count)]
        try:
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                under_way = [pool.submit(self._operate, plan, target)
                             for plan in plans]
                getattr(self, f'_{fault}')()
                for operation in under_way:
                    operation.result()
        finally:
            ended.set()
            sampler.join()
        self._clock.step(0)
        unsettled = self._await_end()
        time.sleep(QUIET_SECONDS)
        wrong = self._differences()
        counts = self.outcomes - before
        return {'fault': fault, 'target': target,
                'seconds': round(time.monotonic() - began, 1),
                'outcomes': {f'{kind} {outcome}': number for (
                    kind, outcome), number in sorted(counts.items())},
                'wrongly_refused': len(self.wrongly_refused)
                - wrongly_refused,
                'samples': self.samples - samples[0],
                'samples_above': self.samples_above - samples[1],
                'samples_of_alternates':
                    self.samples_of_alternates - samples[2],
                'hook_times': self.hook_times(),
                'unsettled': unsettled, 'differences': wrong}

    # The faults.

    def _nothing(self):
        """No fault."""

    def _compute_killed(self):
        host = self._random.choice(self._openstack.computes)
        time.sleep(5)
        self._openstack.kill(f'compute-{host}')
        service, = [item for item in self._compute.services(
            binary='nova-compute') if item.host == host]
        self._down.add(host)
        self._compute.update_service_forced_down(
            service, host, 'nova-compute', True)
        time.sleep(10)
        for server, name in self._take(
                lambda server: server.compute_host == host):
            self._attempt('evacuate', server, name)
        self._openstack.start_service(f'compute-{host}')
        scenarios.end_forced_down(self._compute, service, host, END_SECONDS)
        self._down.discard(host)

    def _cell_paused(self):
        server = self._stage.cloud.cell2.process
        time.sleep(5)
        self._paused.set()
        server.send_signal(signal.SIGSTOP)
        try:
            time.sleep(PAUSE_SECONDS)
        finally:
            server.send_signal(signal.SIGCONT)
        # What hung meanwhile has to end.
        time.sleep(5)
        self._paused.clear()

    def _scheduler_killed(self):
        name = self._random.choice(self._openstack.schedulers)
        time.sleep(5)
        self._openstack.kill(name)
        time.sleep(5)
        self._openstack.start_service(name)

    def _clock_ahead(self):
        time.sleep(5)
        self._clock.step(3600)

    def _clock_behind(self):
        time.sleep(5)
        self._clock.step(-3600)

    # The operations.

    def _operate(self, plan, target):
        generator = random.Random(plan)
        try:
            limit = target * scenarios.CAPACITY_KBPS * len(self._stage.hosts)
            with self._lock:
                used = sum(_KBPS[name] for _, name in self._idle.values())
            if used < limit and generator.random() < .6 or not self._idle:
                self._boot(generator.choice(FLAVORS))
                return
            chosen = self._take(lambda server: True, generator, 1)
            if not chosen:
                return
            kind = 'delete' if used > limit else generator.choice(self.KINDS)
            self._attempt(kind, *chosen[0], generator)
        except Exception as error:
            self.outcomes['operation', type(error).__name__] += 1
            self.failures.append(f'operation: {error!r}')

    KINDS = ('delete', 'resize', 'migrate', 'live_migrate', 'abort',
             'shelve', 'soft_delete', 'rebuild', 'stop')

    def _take(self, wanted, generator=None, most=None):
        """Take servers that nothing is done to; return them."""
        with self._lock:
            uuids = [uuid for uuid, (server, _) in sorted(self._idle.items())
                     if wanted(server)]
            if generator is not None:
                generator.shuffle(uuids)
            return [self._idle.pop(uuid) for uuid in uuids[:most]]

    def _boot(self, name):
        # Not through the client's boot(), which waits for longer.
        with self._outcome('boot', _KBPS[name]):
            server = self._stage.client.boot(
                f'random-{next(self._numbers)}', self._stage.flavors[name],
                wait=False)
            server = self._settled(server, 'ACTIVE')
            if server.status == 'ERROR':
                self._compute.delete_server(server, force=True)
                self._fail(server)
            with self._lock:
                self._idle[server.id] = server, name

    def _attempt(self, kind, server, name, generator=None):
        """Do something to a server that was taken."""
        with self._outcome(kind, _KBPS['large']):
            try:
                found = getattr(self, f'_{kind}_server')(
                    server, name, generator)
            except (sdk_exceptions.BadRequestException,
                    sdk_exceptions.ConflictException):
                # Nova has begun nothing.
                with self._lock:
                    self._idle[server.id] = server, name
                raise
            if found is not None:
                server, name = found
                if server.status == 'ERROR':
                    self._compute.delete_server(server, force=True)
                    self._fail(server)
                with self._lock:
                    self._idle[server.id] = server, name

    def _delete_server(self, server, name, generator):
        self._compute.delete_server(server, force=True)

    def _resize_server(self, server, name, generator):
        to = generator.choice([flavor for flavor in FLAVORS if flavor != name])
        return self._decide(server, name, to, generator, 'resize_server',
                            self._stage.flavors[to].id)

    def _migrate_server(self, server, name, generator):
        return self._decide(server, name, name, generator, 'migrate_server')

    def _decide(self, server, old, new, generator, *action):
        server = self._act(server, *action,
                           states=('VERIFY_RESIZE', 'ACTIVE', 'SHUTOFF'))
        if server.status != 'VERIFY_RESIZE':
            with self._lock:
                self._idle[server.id] = server, old
            raise Refused('it was not resized')
        time.sleep(generator.random() * 5)
        end, name = (('confirm', new) if generator.random() < .5
                     else ('revert', old))
        return self._act(server, f'{end}_server_resize',
                         states=('ACTIVE', 'SHUTOFF')), name

    def _live_migrate_server(self, server, name, generator):
        return self._act(server, 'live_migrate_server', host=None,
                         block_migration='auto'), name

    def _abort_server(self, server, name, generator):
        self._compute.live_migrate_server(server, host=None,
                                          block_migration='auto')
        limit = time.monotonic() + 20
        while time.monotonic() < limit:
            running = [
                migration for migration
                in self._compute.server_migrations(server)
                if migration.status == 'running']
            if running:
                with contextlib.suppress(sdk_exceptions.HttpException):
                    self._compute.abort_server_migration(running[0], server)
                break
            time.sleep(.3)
        time.sleep(1)
        return self._settled(server, 'ACTIVE'), name

    def _shelve_server(self, server, name, generator):
        self._act(server, 'shelve_server', states=('SHELVED_OFFLOADED',))
        time.sleep(generator.random() * 5)
        return self._act(server, 'unshelve_server',
                         states=('ACTIVE', 'SHELVED_OFFLOADED')), name

    def _soft_delete_server(self, server, name, generator):
        self._act(server, 'delete_server', states=('SOFT_DELETED',))
        time.sleep(generator.random() * 5)
        if generator.random() < .5:
            self._compute.delete_server(server, force=True)
            return None
        return self._act(server, 'restore_server'), name

    def _rebuild_server(self, server, name, generator):
        return self._act(server, 'rebuild_server', self._image.id), name

    def _stop_server(self, server, name, generator):
        self._act(server, 'stop_server', states=('SHUTOFF',))
        return self._act(server, 'start_server'), name

    def _evacuate_server(self, server, name, generator):
        return self._act(server, 'evacuate_server',
                         states=('ACTIVE', 'SHUTOFF')), name

    def _act(self, server, action, *arguments, states=('ACTIVE',), **more):
        """Do something to a server and return it once that is over."""
        getattr(self._compute, action)(server, *arguments, **more)
        time.sleep(1)
        return self._settled(server, *states)

    def _settled(self, server, *states):
        limit = time.monotonic() + OPERATION_SECONDS
        while True:
            server = self._stage.client.get(server)
            if server.status in {*states, 'ERROR'} and not server.task_state:
                return server
            if time.monotonic() > limit:
                raise TimeoutError(f'{server.status} {server.task_state}')
            # Each look takes processor time from what it waits for.
            time.sleep(1)

    def _fail(self, server):
        message = (server.fault or {}).get('message', '')
        if 'No valid host' in message:
            raise Refused(message)
        raise RuntimeError(message)

    # What came of them.

    @contextlib.contextmanager
    def _outcome(self, kind, kbps):
        number = next(self._numbers)
        with self._lock:
            self._overlapping[number] = sum(self._demands.values())
            for other in self._demands:
                self._overlapping[other] += kbps
            self._demands[number] = kbps
        paused = self._paused.is_set()
        room = self._room() if kind == 'boot' and not paused else None
        outcome = 'done'
        try:
            yield
        except Refused:
            outcome = 'refused'
        except TimeoutError as error:
            outcome = 'not ended'
            self.failures.append(f'{kind}: {error}')
        except (sdk_exceptions.SDKException,
                ks_exceptions.ClientException) as error:
            outcome = f'HTTP {getattr(error, "status_code", None)}'
            self.failures.append(f'{kind}: {str(error)[:500]}')
        except RuntimeError as error:
            outcome = f'failed: {str(error)[:60]}'
            self.failures.append(f'{kind}: {str(error)[:500]}')
        finally:
            with self._lock:
                del self._demands[number]
                others = self._overlapping.pop(number)
            self.outcomes[kind, outcome] += 1
        if outcome == 'refused' and kind == 'boot':
            self.refused += 1
            if room is not None and not self._paused.is_set():
                self.judged += 1
                least = min(room, self._room()) - others
                if least >= kbps:
                    self.wrongly_refused.append(
                        f'a boot of {kbps} kbit/s, {least} free')

    def _room(self):
        """Return what the host with most room has left, kbit/s."""
        loads = self._judge.loads()
        return scenarios.CAPACITY_KBPS - min(
            loads.get(host, 0) for host in self._stage.hosts
            if host not in self._down)

    def _sample(self, ended):
        """See which hosts have more than what fits."""
        while not ended.wait(2.0):
            if self._paused.is_set():
                continue
            above = _above(self._judge.loads())
            self.samples += len(self._stage.hosts)
            if not above:
                continue
            # Nova asks no filter about the alternates of a failed build.
            chosen = _above(self._judge.loads(self._judge.alternates()))
            self.samples_of_alternates += len(above.keys() - chosen.keys())
            for host in above.keys() & chosen.keys():
                self.samples_above += 1
                self.failures.append(
                    f'{time.strftime("%H:%M:%S")} {host} is above its limit '
                    f'by {chosen[host]:.0f} kbit/s')
                self.failures += self._judge.occupants(host)

    def _await_end(self):
        """Wait until Nova does nothing; return what it has not ended.

        What it has not ended in an earlier part is not waited for again.
        """
        limit = time.monotonic() + END_SECONDS
        while True:
            busy = set(self._judge.unsettled()) - self._never_ended
            if not busy or time.monotonic() > limit:
                self._never_ended |= busy
                return sorted(busy)
            time.sleep(2)

    def _differences(self):
        # A worker looks at the hosts when a request comes.
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self._probe, range(2 * self._openstack.workers)))
        time.sleep(QUIET_SECONDS)
        return self._judge.differences(self._openstack.reports())

    def _probe(self, number):
        server = self._stage.client.boot(
            f'probe-{number}', self._stage.flavors['huge'])
        self._compute.delete_server(server, force=True)

    def hook_times(self):
        """Return {hook: ms of processor} of the calls since the last time.

        The first requests of each worker, which read the configuration and
        all hosts or wait for it, are apart.
        """
        seconds = collections.defaultdict(list)
        for path in glob.glob(self._openstack.path('times', '*')):
            with open(path) as stream:
                stream.seek(self._read.get(path, 0))
                text, end, _ = stream.read().rpartition('\n')
            for line in text.splitlines():
                hook, cpu, _ = line.split()
                seconds[hook].append(1e3 * float(cpu))
            self._read[path] = self._read.get(path, 0) + len(text) + len(end)
        return dict(seconds)

    def clean_up(self):
        """Delete all servers, the softly deleted ones as well."""
        for server in self._stage.client.servers():
            with contextlib.suppress(sdk_exceptions.SDKException):
                self._compute.delete_server(server, force=True)


def run(cloud_options, count, seed, folder, patience, stage_of, auditor):
    """Start a cloud, play; print lines; return whether all was well.

    :param patience: the option claim_patience_seconds
    """
    clock = stepped_clock.SteppedClock(folder)
    with services.Cloud(
            **cloud_options, **options_of_cloud(clock),
            scheduler_options={'claim_patience_seconds': patience}) as cloud:
        stage = stage_of(cloud)
        judge = auditor.Auditor(cloud, scenarios.CAPACITY_KBPS, 0.0)
        _, logged = cloud.openstack.complaints()
        operations = Operations(stage, judge, clock, seed)
        good = True
        times = collections.defaultdict(list)
        for line in operations.play(count):
            good &= not line['differences']
            outcomes = ', '.join(f'{number} {outcome}' for outcome, number
                                 in line['outcomes'].items())
            print(f'{"good" if not line["differences"] else "BAD ":5}'
                  f'{line["seconds"]:7.1f} s {line["fault"]:18} '
                  f'{line["target"]:.0%}: {outcomes}; '
                  f'{len(line["unsettled"])} that Nova has not ended; '
                  f'{line["wrongly_refused"]} wrongly refused; '
                  f'{line["samples_above"]} of {line["samples"]} times '
                  f'above a limit, {line["samples_of_alternates"]} by '
                  f'alternates; {"; ".join(line["differences"])}')
            for hook, values in sorted(line['hook_times'].items()):
                print(_times(hook, values))
                times[hook] += values
            print(*operations.failures, sep='\n', flush=True)
            operations.failures.clear()
        missed = cloud.openstack.total('claim_misses_total')
        operations.clean_up()
        print(f'refused {operations.refused} boots, of {operations.judged} '
              f'it can be said by the databases whether that was right: '
              f'{len(operations.wrongly_refused)} wrongly '
              f'{operations.wrongly_refused}')
        print(f'{operations.samples_above} of {operations.samples} times a '
              f'host was above its limit, {operations.samples_of_alternates} '
              f'times by alternates; the workers missed '
              f'{missed:.0f} claims')
        for hook, values in sorted(times.items()):
            print(_times(hook, values))
        ours = [line for line in cloud.openstack.complaints(logged)[0]
                if any(bug in line for bug in _BUGS)]
        print(*ours, f'{len(ours)} lines of a fault of ours', sep='\n')
        good &= not operations.wrongly_refused and not ours
        # A claim that was missed is one of the worker's memory alone.
        good &= not operations.samples_above or bool(missed)
        good &= all(max(values) <= 1e3 * MOST_HOOK_SECONDS
                    for hook, values in times.items()
                    if not hook.endswith('first'))
    return good


def _above(loads):
    """Return {host: kbit/s} of what is above what hosts carry."""
    return {host: kbps - scenarios.CAPACITY_KBPS
            for host, kbps in loads.items()
            if kbps > scenarios.CAPACITY_KBPS}


def _times(hook, values):
    ordered = sorted(values)
    return (f'{hook:28}{len(ordered):7} calls, ms of a thread: '
            f'{ordered[len(ordered) // 2]:.2f} (median), '
            f'{ordered[int(.99 * len(ordered))]:.2f} (99 %), '
            f'{ordered[-1]:.2f} (most)')


#: What the log says of a bug of ours.
_BUGS = ('vswitch: VSwitchFilter: ', 'vswitch: VSwitchWeigher: ',
         'vswitch: hook ')
