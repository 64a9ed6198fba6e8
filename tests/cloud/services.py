# SPDX-License-Identifier: Apache-2.0
"""A control plane of separate processes, each a fixture's child.

MariaDB, RabbitMQ, keystone, placement, glance, a stand-in for Neutron, and
Nova's API, conductor, schedulers and computes with the fake driver. All listen
on the loopback interface, and each keeps its state in a folder of its own.
"""

import base64
import collections
import contextlib
import glob
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request

import fixtures
from prometheus_client import parser
import pymysql
import sqlalchemy as sa

from tests.cloud import client as api
from tests.cloud import telemetry
from tests.cloud import watcher
from tests.fakes import store_accounts
from tests.integration import modeler_processes
from tests.integration import servers
from tests.integration import store_suite
from vswitch_aware_scheduler.store import migration

PASSWORD = 'open-sesame'
REGION = 'RegionOne'

#: Longest wait for readings of Nova's record.
READING_SECONDS = 120

#: First port of the metrics of workers, at an address of each cloud.
_METRICS_PORT = 9210

#: Longest wait for a service, on a machine that starts a dozen at once.
START_SECONDS = 300

DATABASES = ('keystone', 'placement', 'glance', 'nova_api', 'nova_cell0',
             'nova')
STORE = 'vswitch'

#: Runs a command, its arguments, where nothing can be written but temporary
#: files, without which a service of nova does not start; needs root.
READ_ONLY = ('env', 'TMPDIR=/dev/shm', 'unshare', '--mount', 'sh', '-c',
             'mount -o remount,bind,ro / && exec "$@"', 'sh')

#: Database and virtual host of the broker of the second cell.
CELL2 = 'cell2'

#: The wheels of nova and its like have it below the prefix.
_ETC = os.path.join(sys.prefix, 'etc')

# Native threads, in the WSGI applications too.
_ENVIRONMENT = {**os.environ, 'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true',
                'PYTHONUNBUFFERED': '1'}


class Database(servers.MariaDB):
    """MariaDB with a database for each service.

    :param names: of the databases
    """

    def __init__(self, names):
        super().__init__()
        self._names = names

    def _setUp(self):
        super()._setUp()
        for name in self._names:
            self.execute(f'CREATE DATABASE {name} '
                         f'CHARACTER SET utf8mb3')

    def start_server(self):
        if '--max-connections=1000' not in self._command:
            self._command = (*self._command, '--max-connections=1000')
        super().start_server()

    def url_of(self, name):
        return f'mysql+pymysql://root@127.0.0.1:{self.port}/{name}'

    def execute(self, statement):
        with pymysql.connect(host='127.0.0.1', port=self.port, user='root',
                             autocommit=True) as connection, \
                connection.cursor() as cursor:
            cursor.execute(statement)

    def rows(self, name, statement):
        """Return the rows of a query in one database, as dictionaries."""
        engine = sa.create_engine(self.url_of(name))
        try:
            with engine.connect() as connection:
                return [dict(row._mapping) for row in
                        connection.execute(sa.text(statement))]
        finally:
            engine.dispose()


class RabbitMQ(servers.Server):
    """A broker with a virtual host for each cell.

    ``url`` for oslo.messaging, ``url_of`` for that of another virtual host.
    """

    required = True

    def _setUp(self):
        super()._setUp()
        # Not the one of the path, which insists on folders of the system.
        places = sorted(glob.glob(
            '/usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server'))
        if not places:
            raise servers.MissingProgram('rabbitmq-server is not installed')
        self.port, distribution, epmd = (servers.free_port()
                                         for _ in range(3))
        self.url = self.url_of('')
        self.write('rabbitmq.conf', f'''
            listeners.tcp.1 = 127.0.0.1:{self.port}
            load_definitions = {self.folder}/definitions.json
            loopback_users = none
            log.file.level = warning
            ''')
        everything = dict.fromkeys(('configure', 'read', 'write'), '.*')
        salt = b'salt'
        self.write('definitions.json', json.dumps({
            'users': [{
                'name': 'openstack', 'tags': '',
                'hashing_algorithm': 'rabbit_password_hashing_sha256',
                'password_hash': base64.b64encode(salt + hashlib.sha256(
                    salt + PASSWORD.encode()).digest()).decode()}],
            'vhosts': [{'name': name} for name in ('/', CELL2)],
            'permissions': [{'user': 'openstack', 'vhost': name,
                             **everything} for name in ('/', CELL2)]}))
        self.write('enabled_plugins', '[].')
        self.addCleanup(_end_port_mapper, epmd)
        user = pwd.getpwnam('rabbitmq') if not os.getuid() else None
        if user:
            for path in (self.folder, *map(
                    lambda name: os.path.join(self.folder, name),
                    os.listdir(self.folder))):
                os.chown(path, user.pw_uid, user.pw_gid)
        self.process = self.start(
            places[-1], start_new_session=True, cwd=self.folder, env={
                'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LANG': 'C.UTF-8',
                'HOME': self.folder,
                'RABBITMQ_NODENAME': f'rabbit{self.port}@localhost',
                'RABBITMQ_CONFIG_FILE': f'{self.folder}/rabbitmq',
                'RABBITMQ_MNESIA_BASE': f'{self.folder}/mnesia',
                'RABBITMQ_LOG_BASE': f'{self.folder}/logs',
                'RABBITMQ_ENABLED_PLUGINS_FILE':
                    f'{self.folder}/enabled_plugins',
                'RABBITMQ_DIST_PORT': str(distribution),
                'ERL_EPMD_ADDRESS': '127.0.0.1', 'ERL_EPMD_PORT': str(epmd),
                'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                    '-kernel inet_dist_use_interface {127,0,0,1}'},
            **({'user': user.pw_uid, 'group': user.pw_gid,
                'extra_groups': []} if user else {}))
        self.addCleanup(_end_group, self.process)
        self.wait(self.process, lambda: servers.listens(self.port))

    def url_of(self, name):
        return f'rabbit://openstack:{PASSWORD}@127.0.0.1:{self.port}/{name}'


def _end_port_mapper(port):
    """End the Erlang port mapper, which makes a session of its own.

    It refuses while it knows of a node; that of a killed broker is gone soon.
    """
    limit = time.monotonic() + 10
    while shutil.which('epmd') and servers.listens(port) \
            and time.monotonic() < limit:
        subprocess.run(('epmd', '-port', str(port), '-kill'),
                       capture_output=True, timeout=60)
        time.sleep(.2)


def _end_group(process):
    """End a process and what it has started in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(20)


class OpenStack(servers.Server):
    """Keystone, placement and Nova.

    :param database: :class:`Database`
    :param cell2: Database of the second cell
    :param store_url: of our store
    :param broker: :class:`RabbitMQ`
    :param computes: names of the hosts; the last third is in the second cell
    :param schedulers: number of nova-scheduler processes
    :param workers: of each of them
    :param options: of nova.conf, section DEFAULT, by name
    :param environments: {name of a process: its variables}
    :param scheduler_options: of [vswitch_scheduler], by name
    :ivar auth: keywords of :class:`keystoneauth1.identity.v3.Password`
    :ivar cells: list of the lists of hosts of each cell
    :ivar schedulers: names of the nova-scheduler processes
    """

    def __init__(self, database, cell2, store_url, broker, computes,
                 schedulers=3, workers=2, options=(), environments=None,
                 scheduler_options=()):
        super().__init__()
        self._scheduler_options = dict(scheduler_options)
        self._options = {'service_down_time': 30, **dict(options)}
        self._database, self._broker = database, broker
        self._cell2 = cell2
        self._store_url = store_url
        self.computes = list(computes)
        first = len(self.computes) - len(self.computes) // 3
        self.cells = [self.computes[:first], self.computes[first:]]
        self.schedulers = [f'scheduler-{number}'
                           for number in range(schedulers)]
        self.workers = schedulers * workers
        self._workers = workers
        self.processes = {}
        self._environments = environments or {}

    def cell_of(self, host):
        """Return the hosts of the cell of a host."""
        return next(hosts for hosts in self.cells if host in hosts)

    def cell_rows(self, statement):
        """Return the rows of a query in the databases of both cells."""
        return (self._database.rows('nova', statement)
                + self._cell2.rows(CELL2, statement))

    def _setUp(self):
        super()._setUp()
        self.ports = {name: servers.free_port() for name in (
            'keystone', 'placement', 'glance', 'nova', 'neutron', 'watcher')}
        pid = os.getpid()
        self._metrics_address = \
            f'127.{1 + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}'
        self.auth = {
            'auth_url': self.url('keystone') + '/v3', 'username': 'admin',
            'password': PASSWORD, 'project_name': 'admin',
            'user_domain_id': 'default', 'project_domain_id': 'default'}
        self._configure()
        self._start_keystone()
        self._start_placement()
        self._start_glance()
        self._start_nova()

    @property
    def broker_url(self):
        """URL of the broker for oslo.messaging."""
        return self._broker.url

    def url(self, name):
        return f'http://127.0.0.1:{self.ports[name]}'

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def log_of(self, name):
        """Return all that a process has said."""
        with open(self.path(f'{name}.log'), errors='replace') as stream:
            return stream.read()

    # Processes.

    def run_service(self, name, *command, **environment):
        """Start a process by name, with a log of its own."""
        with open(self.path(f'{name}.log'), 'ab') as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, env={**_ENVIRONMENT, **environment},
                start_new_session=True)
        self.processes[name] = process
        # There is nothing to save: no need to wait for a graceful end.
        self.addCleanup(_end_group, process)
        return process

    def kill(self, name):
        """End a process without a word, and what it has forked."""
        _end_group(self.processes[name])

    def stop(self, name):
        self.end(self.processes[name])

    def serve(self, name, application, **environment):
        """Serve a WSGI application at the port of its name."""
        # Some applications take the words of the command line for theirs.
        # Nova asks Neutron for the ports of 150 servers in one request line.
        # No connection is kept: a request that a client sends while the server
        # closes an idle connection has no answer. Kept for long, the
        # connections of nova-scheduler to placement, opened before it forks,
        # are shared by its workers, which then read answers of each other.
        configuration = self._write(f'gunicorn-{name}.py', f"""
            bind = '127.0.0.1:{self.ports[name]}'
            threads = 16
            timeout = 600
            keepalive = 0
            limit_request_line = 0
            loglevel = 'warning'
            wsgi_app = '{application}'
            """)
        self.run_service(
            name, sys.executable, '-m', 'gunicorn',
            GUNICORN_CMD_ARGS=f'--config {configuration}', **environment)
        self._await(name, lambda: servers.answers(self.url(name)))

    def _await(self, name, ready):
        limit = time.monotonic() + START_SECONDS
        while not ready():
            if self.processes[name].poll() is not None \
                    or time.monotonic() > limit:
                raise RuntimeError(f'{name} does not answer: '
                                   f'{self.log_of(name)[-3000:]}')
            time.sleep(.2)

    def run(self, *command):
        """Run a command to its end, which has to be good."""
        with open(self.path('setup.log'), 'ab') as log:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, env=_ENVIRONMENT, timeout=600)
        if done.returncode:
            raise RuntimeError(f'{command[0]} exited with {done.returncode}:'
                               f' {self.log_of("setup")[-3000:]}')

    def script(self, name):
        """Return the path of a program of this environment."""
        return os.path.join(os.path.dirname(sys.executable), name)

    def complaints(self, since=None):
        """Return what the services said went wrong, and what filters refused.

        :param since: {name: characters of the log to pass over}
        :returns: (lines, what to pass over the next time)
        """
        lines, ends = [], {}
        for name in self.processes:
            text = self.log_of(name)
            ends[name] = len(text)
            lines.extend(
                f'{name}: {line[:500]}' for line in
                text[(since or {}).get(name, 0):].splitlines()
                if any(word in line for word in _COMPLAINTS))
        return lines, ends

    def reports(self):
        """Return {pid: {host: [uuid]}} of what each worker counts where."""
        return {pid: self._report(name, pid)
                for pid, name in self.worker_pids().items()}

    def worker_pids(self):
        """Return {pid of a worker: name of its scheduler}."""
        return {pid: name for name in self.schedulers
                for pid in _children(self.processes[name].pid)}

    def _report(self, name, pid):
        end = len(self.log_of(name))
        os.kill(pid, signal.SIGUSR2)
        limit = time.monotonic() + 60
        mark = f'{{"pid": {pid}, '
        while True:
            text = self.log_of(name)[end:]
            begin = text.find(mark)
            # The report goes on after our section.
            if begin >= 0 and '====' in text[begin:]:
                break
            if time.monotonic() > limit:
                raise RuntimeError(f'worker {pid} of {name} makes no report')
            time.sleep(.2)
        counted = {}
        for line in text[begin:].splitlines()[1:]:
            if not line.startswith('{'):
                break
            report = json.loads(line)
            counted[report['host']] = report['instances']
        return counted

    # Metrics.

    def metrics(self):
        """Return what each worker that had a request exports.

        :returns: list of {name of a sample: value, summed over labels}
        """
        workers = []
        for port in range(_METRICS_PORT, _METRICS_PORT + 2 * self.workers):
            # A worker that was killed leaves a gap.
            with contextlib.suppress(OSError), urllib.request.urlopen(
                    f'http://{self._metrics_address}:{port}/metrics',
                    timeout=60) as response:  # nosec
                values = collections.Counter()
                for family in parser.text_string_to_metric_families(
                        response.read().decode()):
                    for sample in family.samples:
                        values[sample.name] += sample.value
                workers.append(values)
        return workers

    def total(self, name):
        """Return the sum of a metric of the workers, without the prefix."""
        return sum(worker[f'vswitch_scheduler_{name}']
                   for worker in self.metrics())

    def await_readings(self, count=2):
        """Wait until each worker has read Nova's record a number of times.

        Each of these readings begins after the end of the previous one.
        """
        limit = time.monotonic() + READING_SECONDS
        for _ in range(count):
            began = time.monotonic()
            while True:
                ages = [worker['vswitch_scheduler_record_age_seconds']
                        for worker in self.metrics()]
                # Ages are rounded to tenths.
                if all(age + .1 < time.monotonic() - began for age in ages):
                    break
                if time.monotonic() > limit:
                    raise TimeoutError(f"ages of Nova's record: {ages}")
                time.sleep(.2)

    def await_generation(self, number):
        """Wait until each worker uses a generation of the store, or a later.

        A worker that had no request yet reads the newest one at its first.
        """
        api.await_fact(lambda: all(
            worker['vswitch_scheduler_generation'] >= number
            for worker in self.metrics()), f'generation {number} in use',
            READING_SECONDS)

    # Configuration.

    def _write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w') as stream:
            stream.write(textwrap.dedent(text))
        return path

    def client_options(self, user):
        """Return the lines of a configuration that tell who asks."""
        return textwrap.dedent(f'''
            auth_type = password
            auth_url = {self.url('keystone')}/v3
            username = {user}
            password = {PASSWORD}
            project_name = service
            user_domain_id = default
            project_domain_id = default
            region_name = {REGION}
            ''')

    def _configure(self):
        self._write('keystone/keystone.conf', f'''
            [DEFAULT]
            use_stderr = true
            [database]
            connection = {self._database.url_of('keystone')}
            [identity]
            # Each process asks for several tokens; a password check with the
            # default takes a quarter of a second of processor.
            password_hash_rounds = 4
            [token]
            provider = fernet
            expiration = 86400
            [fernet_tokens]
            key_repository = {self.path('fernet')}
            [fernet_receipts]
            key_repository = {self.path('fernet')}
            [credential]
            key_repository = {self.path('credential')}
            ''')
        tokens = (f'[keystone_authtoken]\nwww_authenticate_uri = '
                  f'{self.url("keystone")}/v3\n')
        self._write('placement/placement.conf', textwrap.dedent(f'''
            [DEFAULT]
            use_stderr = true
            [api]
            auth_strategy = keystone
            [placement_database]
            connection = {self._database.url_of('placement')}
            # More than a request of each thread needs. With the default of
            # 15, requests failed that waited 30 s for a connection.
            max_pool_size = 40
            ''') + tokens + self.client_options('placement'))
        self._write('glance/glance-api.conf', textwrap.dedent(f'''
            [DEFAULT]
            use_stderr = true
            enabled_backends = images:file
            [glance_store]
            default_backend = images
            [images]
            filesystem_store_datadir = {self.path('images')}
            [os_glance_staging_store]
            filesystem_store_datadir = {self.path('images-staging')}
            [os_glance_tasks_store]
            filesystem_store_datadir = {self.path('images-tasks')}
            [database]
            connection = {self._database.url_of('glance')}
            [oslo_concurrency]
            lock_path = {self.path('glance', 'locks')}
            [paste_deploy]
            flavor = keystone
            config_file = {_ETC}/glance/glance-api-paste.ini
            ''') + tokens + self.client_options('glance'))
        self._write('nova/nova.conf', textwrap.dedent(f'''
            [DEFAULT]
            use_stderr = true
            state_path = {self.path('nova')}
            my_ip = 127.0.0.1
            transport_url = {self._broker.url}
            compute_driver = fake.FakeDriverWithoutFakeNodes
            allow_resize_to_same_host = true
            vif_plugging_is_fatal = false
            vif_plugging_timeout = 0
            manager_shutdown_timeout = 0
            report_interval = 5
            update_resources_interval = 20
            scheduler_instance_sync_interval = 20
            @OPTIONS@
            [wsgi]
            api_paste_config = {_ETC}/nova/api-paste.ini
            [vnc]
            enabled = false
            [glance]
            endpoint_override = {self.url('glance')}
            [oslo_concurrency]
            lock_path = {self.path('nova', 'locks')}
            [scheduler]
            workers = {self._workers}
            discover_hosts_in_cells_interval = -1
            [conductor]
            workers = 2
            [compute]
            live_migration_wait_for_vif_plug = false
            [quota]
            instances = -1
            cores = -1
            ram = -1
            [service_user]
            send_service_user_token = true
            ''').replace('@OPTIONS@', '\n'.join(
                f'{name} = {value}' for name, value in self._options.items()
            )) + self.client_options('nova') + ''.join(
                f'[{group}]\n{more}{self.client_options("nova")}'
                for group, more in (
                    ('placement', ''), ('cinder', ''), ('neutron', (
                        f'endpoint_override = {self.url("neutron")}\n')))
            ) + tokens + self.client_options('nova'))
        # Computes must not see the database.
        self._write('nova/database.conf', f'''
            [api_database]
            connection = {self._database.url_of('nova_api')}
            [database]
            connection = {self._database.url_of('nova')}
            ''')
        self._write('nova/cell2.conf', f'''
            [DEFAULT]
            transport_url = {self._broker.url_of(CELL2)}
            ''')
        self._write('nova/cell2-database.conf', f'''
            [DEFAULT]
            host = conductor-cell2
            transport_url = {self._broker.url_of(CELL2)}
            [database]
            connection = {self._cell2.url_of(CELL2)}
            ''')
        shutil.copy(os.path.join(_ETC, 'nova', 'api-paste.ini'),
                    self.path('nova', 'api-paste.ini'))
        self.configure_scheduler()

    def configure_scheduler(self, **options):
        """Write what the schedulers read, our plugin enabled."""
        more = ''.join(f'{name} = {value}\n' for name, value in {
            **self._scheduler_options, **options}.items())
        self._write('nova/scheduler.conf', textwrap.dedent(f'''
            [filter_scheduler]
            available_filters = nova.scheduler.filters.all_filters
            available_filters = {_PLUGIN}.filters.VSwitchFilter
            enabled_filters = {','.join(_FILTERS)},VSwitchFilter
            weight_classes = nova.scheduler.weights.all_weighers
            weight_classes = {_PLUGIN}.weights.VSwitchWeigher
            [vswitch_scheduler]
            store_url = {self._store_url}
            snapshot_refresh_seconds = 1
            scheduler_metrics_port = {_METRICS_PORT}
            scheduler_metrics_address = {self._metrics_address}
            ''') + more)

    # Services.

    def _start_keystone(self):
        manage = (self.script('keystone-manage'), '--config-dir',
                  self.path('keystone'))
        for name in ('fernet', 'credential'):
            os.mkdir(self.path(name), 0o700)
        self.run(*manage, 'db_sync')
        for command in ('fernet_setup', 'credential_setup'):
            self.run(*manage, command, '--keystone-user', _user(),
                     '--keystone-group', _user())
        public = self.url('keystone') + '/v3/'
        self.run(*manage, 'bootstrap', '--bootstrap-password', PASSWORD,
                 '--bootstrap-region-id', REGION, '--bootstrap-public-url',
                 public, '--bootstrap-internal-url', public,
                 '--bootstrap-admin-url', public)
        self.serve('keystone', 'keystone.wsgi.api:application',
                   OS_KEYSTONE_CONFIG_DIR=self.path('keystone'))
        self._fill_catalog()

    def _fill_catalog(self):
        for name, kind, url in (
                ('placement', 'placement', self.url('placement')),
                ('glance', 'image', self.url('glance')),
                ('nova', 'compute', self.url('nova') + '/v2.1'),
                ('neutron', 'network', self.url('neutron'))):
            self.add_service(name, kind, url)

    def add_service(self, name, kind, url):
        """Add a service and its user to keystone, as an operator would.

        :param name: of both
        :param kind: type of the service in the catalog
        :param url: of its endpoints
        """
        from keystoneauth1.identity import v3
        from keystoneauth1 import session
        from keystoneclient.v3 import client

        keystone = client.Client(
            session=session.Session(v3.Password(**self.auth)),
            endpoint_override=self.auth['auth_url'])
        roles = {role.name: role for role in keystone.roles.list()}
        service = roles.get('service') or keystone.roles.create('service')
        project = next(iter(keystone.projects.list(name='service')), None) \
            or keystone.projects.create('service', 'default')
        user = keystone.users.create(name, domain='default',
                                     password=PASSWORD)
        for role in (roles['admin'], service):
            keystone.roles.grant(role, user=user, project=project)
        entry = keystone.services.create(name, type=kind)
        for interface in ('public', 'internal', 'admin'):
            keystone.endpoints.create(entry, url, interface=interface,
                                      region=REGION)

    def _start_placement(self):
        self.run(self.script('placement-manage'), '--config-file',
                 self.path('placement', 'placement.conf'), 'db', 'sync')
        self.serve('placement', 'placement.wsgi.api:application',
                   OS_PLACEMENT_CONFIG_DIR=self.path('placement'))

    def _start_glance(self):
        for name in ('images', 'images-staging', 'images-tasks'):
            os.mkdir(self.path(name))
        self.run(self.script('glance-manage'), '--config-file',
                 self.path('glance', 'glance-api.conf'), 'db_sync')
        self.serve('glance', 'glance.wsgi.api:application',
                   OS_GLANCE_CONFIG_DIR=self.path('glance'))

    def _files(self, *names):
        return [word for name in names
                for word in ('--config-file', self.path('nova', name))]

    def nova_manage(self, *words, files=()):
        self.run(self.script('nova-manage'), *self._files(
            'nova.conf', 'database.conf', *files), *words)

    def _start_nova(self):
        self.nova_manage('api_db', 'sync')
        self.nova_manage('cell_v2', 'map_cell0', '--database_connection',
                         self._database.url_of('nova_cell0'))
        self.nova_manage('cell_v2', 'create_cell', '--name', 'cell1')
        self.nova_manage('db', 'sync')
        self.nova_manage(
            'cell_v2', 'create_cell', '--name', 'cell2', '--transport-url',
            self._broker.url_of(CELL2), '--database_connection',
            self._cell2.url_of(CELL2))
        self.nova_manage('db', 'sync', '--local_cell',
                         files=['cell2-database.conf'])
        self.serve('neutron', 'tests.cloud.neutron:application',
                   PYTHONPATH=os.getcwd())
        for name in ('conductor', 'cell2', *self.schedulers):
            self.start_service(name)
        for host in self.computes:
            self.start_service(f'compute-{host}')
        self.serve('nova', 'nova.wsgi.osapi_compute:application',
                   OS_NOVA_CONFIG_DIR=self.path('nova'),
                   OS_NOVA_CONFIG_FILES='api-paste.ini;nova.conf;'
                   'database.conf')
        self._await_computes()
        self.nova_manage('cell_v2', 'discover_hosts')

    def start_service(self, name, failing=False, read_only=False):
        """Start a process of Nova by its name.

        That is conductor, cell2 (the conductor of that cell), scheduler-N or
        compute-HOST.

        :param failing: whether it is a compute whose builds fail
        :param read_only: whether it is a scheduler that may write no file
        """
        kind, _, which = name.partition('-')
        cell = ('cell2.conf',) if which in self.cells[1] else ()
        files = {'conductor': ('nova.conf', 'database.conf'),
                 'cell2': ('nova.conf', 'database.conf',
                           'cell2-database.conf'),
                 'scheduler': ('nova.conf', 'database.conf',
                               'scheduler.conf', f'{name}.conf'),
                 'compute': ('nova.conf', *cell, f'{name}.conf')}[kind]
        if which:
            # Each scheduler is a service of its own to Nova.
            host = which if kind == 'compute' else name
            self._write(f'nova/{name}.conf', f'''
                [DEFAULT]
                host = {host}
                state_path = {self.path(f'state-{name}')}
                [oslo_concurrency]
                lock_path = {self.path(f'state-{name}', 'locks')}
                ''')
            os.makedirs(self.path(f'state-{name}'), exist_ok=True)
        program = (self.script(
            f'nova-{"conductor" if kind == "cell2" else kind}'),)
        if kind == 'compute':
            program = sys.executable, '-m', 'tests.cloud.slow_compute'
        if failing:
            program = sys.executable, '-m', 'tests.cloud.failing_compute'
        elif read_only:
            program = *READ_ONLY, sys.executable, *program
        elif kind == 'scheduler':
            program = sys.executable, '-m', 'tests.cloud.timed_scheduler'
        return self.run_service(
            name, *program, *self._files(*files), PYTHONPATH=os.getcwd(),
            VSWITCH_TIMES=self.path('times'),
            **self._environments.get(name, {}))

    def restart_compute(self, host, failing=False):
        """Start a compute anew and wait until it is at work.

        :param failing: as of :meth:`start_service`
        """
        def reports():
            row, = self.cell_rows((
                f"SELECT report_count FROM services WHERE deleted = 0 AND "
                f"host = '{host}' AND services.binary = 'nova-compute'"))
            return row['report_count']

        name = f'compute-{host}'
        self.kill(name)
        before = reports()
        self.start_service(name, failing)
        self._await(name, lambda: reports() > before)

    def _await_computes(self):
        def known():
            return len(self.cell_rows(
                'SELECT id FROM compute_nodes WHERE deleted = 0'))
        self._await(f'compute-{self.computes[-1]}',
                    lambda: known() == len(self.computes))


_COMPLAINTS = (' ERROR ', 'returned 0 hosts', 'vswitch: ')
_PLUGIN = 'vswitch_aware_scheduler.scheduler'
_FILTERS = ('ComputeFilter', 'ComputeCapabilitiesFilter',
            'ImagePropertiesFilter', 'ServerGroupAntiAffinityFilter',
            'ServerGroupAffinityFilter')


def _children(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as stream:
        return sorted(map(int, stream.read().split()))


def _user():
    return pwd.getpwuid(os.getuid()).pw_name


class Cloud(fixtures.Fixture):
    """All of it, with a store of ours that is up to date.

    :param computes: number of hosts
    :param driver: of telemetry, a key of :data:`~.telemetry.SOURCES`
    :param store: 'mariadb', 'galera', 'postgresql' or 'sqlite'
    :param more: arguments of :class:`OpenStack`
    :ivar database: :class:`Database` of all services but ours
    :ivar cell2: Database of the second cell
    :ivar store: Database of our store in MariaDB
    :ivar nodes: the two nodes of Galera with our store; ``proxy`` connects to
        them in turn
    :ivar openstack: :class:`OpenStack`, whose schedulers use the store as the
        user that the manual creates
    :ivar store_url: of the store, as the user of the modeler
    """

    def __init__(self, computes=6, driver='gnocchi', store='mariadb', **more):
        super().__init__()
        self._more = more
        self._store_kind = store
        self._names = [f'c{number}' for number in range(1, computes + 1)]
        self._driver = driver

    def _setUp(self):
        self.database = self.useFixture(Database(DATABASES))
        # Servers of their own: one that is away takes nothing else away.
        self.cell2 = self.useFixture(Database([CELL2]))
        self.store_url = getattr(self, f'_start_{self._store_kind}')()
        migration.sync(self.store_url)
        scheduler_url = self.store_url
        if self._store_kind != 'sqlite':
            scheduler_url, self.store_url = store_accounts.create(
                self.store_url)
        broker = self.useFixture(RabbitMQ())
        self.openstack = self.useFixture(OpenStack(
            self.database, self.cell2, scheduler_url, broker,
            self._names, **self._more))
        self._telemetry = self._watcher = None

    def _start_mariadb(self):
        self.store = self.useFixture(Database([STORE]))
        return self.store.url_of(STORE)

    def _start_galera(self):
        self.nodes = [self.useFixture(servers.GaleraNode())]
        self.nodes.append(self.useFixture(servers.GaleraNode(self.nodes[0])))
        self.proxy = modeler_processes.Proxy(
            *(node.port for node in self.nodes), in_turn=True)
        self.addCleanup(self.proxy.close)
        return sa.make_url(store_suite.new_database(self.nodes[0])).set(
            port=self.proxy.port).render_as_string(hide_password=False)

    def _start_postgresql(self):
        return self.useFixture(servers.PostgreSQL()).url

    def _start_sqlite(self):
        folder = self.useFixture(fixtures.TempDir()).path
        return f'sqlite:///{os.path.join(folder, "store")}'

    @property
    def watcher(self):
        """The :class:`~.watcher.Watcher`, started when first asked."""
        if self._watcher is None:
            self._watcher = self.useFixture(watcher.Watcher(
                self, self.telemetry.config_file))
        return self._watcher

    def configure_modeler(self):
        """Write the default options of the modeler, if it was ever started."""
        if self._telemetry is not None:
            self._telemetry.configure()

    @property
    def telemetry(self):
        """The :class:`~.telemetry.Telemetry`, started when first asked."""
        if self._telemetry is None:
            self._telemetry = self.useFixture(
                telemetry.Telemetry(
                    self.store_url, self.openstack.client_options('nova'),
                    telemetry.SOURCES[self._driver]()))
        return self._telemetry
