# SPDX-License-Identifier: Apache-2.0
"""Places a list of VMs with several policies, each in a cloud of its own.

Starts, monitors and ends the clouds. Does not import nova.
"""

import concurrent.futures
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading

import vswitch_aware_scheduler
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.vswitch import profile as switch_profile

__all__ = ['CORES', 'CloudFailed', 'CloudHosts', 'DEFAULT', 'OURS',
           'Placement', 'REBALANCED', 'nova_conf', 'place_all']

DEFAULT = 'Nova defaults'
OURS = 'with the plugin'
REBALANCED = 'with the plugin and rebalancing'
_FILES = {DEFAULT: 'nova-default', OURS: 'nova-with-plugin',
          REBALANCED: 'nova-with-rebalancing'}

#: Cores of a host. With nova's default allocation ratio, 4 VMs share a core.
CORES = 64

#: Seconds without output after which a cloud counts as hanging.
SILENCE_SECONDS = 300
#: Command that starts a cloud; the path of its job follows.
CLOUD_COMMAND = (sys.executable, '-m',
                 'vswitch_aware_scheduler.lab.demo.cloud')
BOOT_TIMEOUT_SECONDS = 240

_COMMON = '''\
# What an in-process cloud of fake computes needs.
[DEFAULT]
compute_driver = fake.FakeDriver
[wsgi]
api_paste_config = {api_paste}
[api]
response_validation = ignore
[notifications]
notification_format = versioned
[quota]
instances = -1
cores = -1
ram = -1
'''

_PLUGIN = '''
# The plugin. Without these lines Nova decides by its defaults.
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = vswitch_aware_scheduler.scheduler.filters.VSwitchFilter
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,\
ImagePropertiesFilter,ServerGroupAntiAffinityFilter,\
ServerGroupAffinityFilter,VSwitchFilter
weight_classes = nova.scheduler.weights.all_weighers,\
vswitch_aware_scheduler.scheduler.weights.VSwitchWeigher
[vswitch_scheduler]
store_url = {store_url}
admission_policy = {admission_policy}
overload_probability = {overload_probability}
# The first request waits for the models, however busy this machine is.
snapshot_first_wait_seconds = 60
'''

_PACKING = '''
# Fill one host after the other, by their switches.
vswitch_weight_multiplier = -1
[filter_scheduler]
cpu_weight_multiplier = 0
ram_weight_multiplier = 0
disk_weight_multiplier = 0
io_ops_weight_multiplier = 0
'''


class CloudFailed(exceptions.VSwitchError):
    """A cloud of the demo could not place the list of VMs."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """The result of placing the list of VMs on a cloud.

    :ivar placements: {uuid of the instance in the trace: host}
    :ivar refusals: {uuid: reason in words}
    :ivar seconds_per_boot: mean time between two requests
    :ivar moves: [(sample, uuid, host)], the live migrations
    :ivar budgets: {host: (seconds of avoidable overload, measured seconds)}
    """

    placements: dict
    refusals: dict
    warnings: list
    seconds_per_boot: float
    moves: list = ()
    problems: list = ()
    budgets: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class CloudHosts:
    """The hosts of a cloud.

    :ivar hosts: [(host, profile name)]
    :ivar rebalancing: None, or as in the job of :func:`.cloud.main`
    """

    hosts: list
    cores: int
    memory_mb: int
    options: dict = dataclasses.field(default_factory=dict)
    rebalancing: dict | None = None


def nova_conf(policy, **options):
    """Return the text of a policy's nova.conf."""
    text = _COMMON.format(
        api_paste=os.path.join(sys.prefix, 'etc', 'nova', 'api-paste.ini'))
    if policy != DEFAULT:
        text += _PLUGIN.format(**options)
    if policy == REBALANCED:
        text += _PACKING
    return text


def place_all(sites, vms, options, folder, jobs=2, progress=None):
    """Place the list of VMs once with each policy, each time in a new cloud.

    :param sites: {policy: CloudHosts}; a policy is DEFAULT, OURS or REBALANCED
    :param jobs: maximum number of clouds at a time
    :returns: {policy: Placement}
    :raises CloudFailed: if a cloud fails
    """
    done, lock = dict.fromkeys(sites, 0), threading.Lock()
    total = sum(len(vms) + len(site.hosts) for site in sites.values())

    def report(policy, count):
        if progress is not None:
            with lock:
                done[policy] = count
                progress(sum(done.values()), total)

    clouds = [_Cloud(policy, os.path.join(folder, _FILES[policy]), vms, site,
                     options, report) for policy, site in sites.items()]
    try:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            waiting = {pool.submit(cloud.run): cloud for cloud in clouds}
            try:
                for future in concurrent.futures.as_completed(waiting):
                    future.result()
            except BaseException:
                # Otherwise the executor would wait for the other clouds.
                for cloud in clouds:
                    cloud.stop()
                raise
    finally:
        for cloud in clouds:
            cloud.stop()
    return {cloud.policy: cloud.placement for cloud in clouds}


class _Cloud:
    """One run of ``cloud`` in a separate process.

    :param report: callable(policy, count), reports progress
    """

    def __init__(self, policy, prefix, vms, site, options, report):
        self.policy = policy
        self.placement = None
        self._prefix, self._report = prefix, report
        self._process, self._stopped = None, False
        self._lock = threading.Lock()
        self._job = {
            'nova_conf': f'{prefix}.conf', 'log': f'{prefix}.log',
            'boot_timeout_seconds': BOOT_TIMEOUT_SECONDS,
            'hosts': site.hosts, 'host': {
                'vcpus': site.cores, 'memory_mb': site.memory_mb,
                'local_gb': 20000},
            'vms': [dataclasses.asdict(vm) for vm in vms],
            'rebalancing': site.rebalancing}
        with open(f'{prefix}.conf', 'w', encoding='utf-8') as stream:
            stream.write(nova_conf(policy, **{**options, **site.options}))

    def run(self):
        """Run the process to its end. Set ``placement``."""
        temporary = f'{self._prefix}.tmp'
        os.makedirs(temporary)
        try:
            self._run(temporary)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _run(self, temporary):
        job = os.path.join(temporary, 'job.json')
        with open(job, 'w', encoding='utf-8') as stream:
            json.dump(self._job, stream)
        root = os.path.dirname(os.path.dirname(
            vswitch_aware_scheduler.__file__))
        environment = {
            # Native threads, which nova's services use by default.
            'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1',
            **os.environ, 'TMPDIR': temporary,
            # Disable features of nova's fixtures that only tests need.
            'OS_TEST_TIMEOUT': '0', 'OS_DEBUG': '0', 'OS_LOG_CAPTURE': '0',
            'OS_STDOUT_CAPTURE': '0', 'OS_STDERR_CAPTURE': '0',
            'PYTHONWARNINGS': 'ignore',
            'PYTHONPATH': os.pathsep.join(filter(None, [
                root, os.environ.get('PYTHONPATH')]))}
        answer = {}
        with open(f'{self._prefix}.err', 'w', encoding='utf-8') as errors:
            with self._lock:
                if self._stopped:
                    return
                self._process = subprocess.Popen(
                    [*CLOUD_COMMAND, job],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=errors, text=True, env=environment, cwd=temporary)
            with self._process:
                watch = self._watch()
                for line in self._process.stdout:
                    watch.cancel()
                    watch = self._watch()
                    answer = json.loads(line)
                    if 'done' in answer:
                        self._report(self.policy, answer['done'])
            watch.cancel()
            status = self._process.returncode
        if self._stopped:
            return
        if 'placements' not in answer:
            raise CloudFailed(
                f'the cloud "{self.policy}" failed: '
                f'{answer.get("error", f"it ended with status {status}")}; '
                f'see {self._prefix}.err and {self._prefix}.log')
        self.placement = Placement(
            answer['placements'],
            {uuid: self._why(refusal)
             for uuid, refusal in answer['refusals'].items()},
            answer['warnings'], answer['seconds_per_boot'],
            **answer.get('rebalancing', {}))

    def _watch(self):
        timer = threading.Timer(SILENCE_SECONDS, self._process.kill)
        timer.daemon = True
        timer.start()
        return timer

    def _why(self, refusal):
        reasons = refusal['reasons']
        if not reasons:
            return refusal['fault']
        # The reason of the host with the largest capacity is shown.
        profiles = switch_profile.profiles()
        roomiest = max(
            (tuple(host) for host in self._job['hosts'] if host[0] in reasons),
            key=lambda host: profiles[host[1]].bandwidth_kbps())
        return (f'VSwitchFilter refused {len(reasons)} hosts; the roomiest, '
                f'{roomiest[0]}: {reasons[roomiest[0]]}')

    def stop(self):
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
