# SPDX-License-Identifier: Apache-2.0
"""Real servers for the integration tests, each a fixture.

A server listens on a free port of the loopback interface, keeps its state in
a folder of its own and is ended by its process id. A program that is not
installed skips the test, with the name of what is missing. A program is
looked for in the folders of the environment variable VSWITCH_SERVERS (as in
PATH), beside the interpreter, in PATH, and where Debian puts it.
"""

import contextlib
import glob
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
import uuid

import fixtures
import requests
import sqlalchemy as sa

#: Longest wait for a server to answer, seconds.
START_SECONDS = 60


def program(name, *places):
    """Return the path of a program.

    :param places: glob patterns of further folders
    :raises MissingProgram: when it is not installed
    """
    folders = os.environ.get('VSWITCH_SERVERS', '').split(os.pathsep)
    folders += [os.path.dirname(sys.executable),
                *os.environ.get('PATH', '').split(os.pathsep)]
    for place in places:
        folders += sorted(glob.glob(place), reverse=True)
    path = shutil.which(name, path=os.pathsep.join(filter(None, folders)))
    if path is None:
        raise MissingProgram(f'{name} is not installed')
    return path


def _existing(*paths):
    """Return the first path that exists.

    :raises MissingProgram: when none does
    """
    for path in filter(os.path.exists, paths):
        return path
    raise MissingProgram(f'{os.path.basename(paths[0])} is not installed')


class MissingProgram(Exception):
    """A server cannot be started here, because it is not installed."""


def free_port():
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


def _demoted():
    """Return how to run what refuses to be run by root."""
    if os.getuid():
        return {}
    for name in ('postgres', 'nobody'):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {'user': user.pw_uid, 'group': user.pw_gid,
                    'extra_groups': []}
    raise MissingProgram('a user other than root')


class Server(fixtures.Fixture):
    """A process that is started, watched and ended.

    :cvar required: whether continuous integration, which sets the environment
        variable CI, fails where it is not installed; elsewhere that is a skip
    """

    required = True

    def _setUp(self):
        self.folder = self.useFixture(fixtures.TempDir()).path
        # Some servers run as another user.
        os.chmod(self.folder, 0o755)
        self.process = None

    def run_to_end(self, *command, **options):
        with open(os.path.join(self.folder, 'log'), 'ab') as log:
            done = subprocess.run(command, stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log,
                                  **{'timeout': 120, **options})
        if done.returncode:
            raise RuntimeError(f'{command[0]} exited with '
                               f'{done.returncode}: {self.log()}')

    def start(self, *command, **options):
        with open(os.path.join(self.folder, 'log'), 'ab') as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **options)
        self.addCleanup(self.end, process)
        return process

    def end(self, process, how=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)

    def write(self, name, text):
        """Return the path of a new file in the server's folder."""
        path = os.path.join(self.folder, name)
        with open(path, 'w') as stream:
            stream.write(textwrap.dedent(text))
        return path

    def log(self):
        with open(os.path.join(self.folder, 'log'), 'rb') as log:
            return log.read()[-4000:].decode('utf-8', 'replace')

    def wait(self, process, ready):
        limit = time.monotonic() + START_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f'{process.args[0]} does not answer: '
                                   f'{self.log()}')
            time.sleep(.1)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # nosec
            return response.status == 200
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def listens(port):
    with contextlib.suppress(OSError), \
            socket.create_connection(('127.0.0.1', port), 1):
        return True
    return False


class Daemon(Server):
    """One process that answers on a port.

    :ivar port: where it listens
    :ivar url: for its clients
    """

    scheme = 'http'

    def _setUp(self):
        super()._setUp()
        self.port = free_port()
        self.url = f'{self.scheme}://127.0.0.1:{self.port}'
        self._options = {}
        self._command = self.prepare()
        self.start_server()

    def prepare(self):
        """Return the command, and make what has to be there before."""
        raise NotImplementedError

    def is_ready(self):
        """Whether the process answers."""
        return listens(self.port)

    def start_server(self):
        self.process = self.start(*self._command, **self._options)
        self.wait(self.process, self.is_ready)

    def stop_server(self):
        self.end(self.process)


class _Database(Daemon):
    """An empty database; ``url`` for SQLAlchemy."""

    def make_data(self):
        """Make the folder of the data; the server runs there."""
        user = _demoted()
        data = os.path.join(self.folder, 'data')
        os.mkdir(data, 0o700)
        if user:
            os.chown(data, user['user'], user['group'])
        self._options = {'cwd': data, **user}
        return data


class PostgreSQL(_Database):
    """An empty database; ``url`` for SQLAlchemy."""

    def prepare(self):
        initdb, postgres = (
            os.path.realpath(program(name, '/usr/lib/postgresql/*/bin'))
            for name in ('initdb', 'postgres'))
        data = self.make_data()
        self.run_to_end(initdb, '-D', data, '-U', 'gnocchi', '--auth=trust',
                        '-E', 'UTF8', '--locale=C.UTF-8', '--no-sync',
                        **self._options)
        self.url = f'postgresql://gnocchi@127.0.0.1:{self.port}/postgres'
        return (postgres, '-D', data, '-p', str(self.port), '-h', '127.0.0.1',
                '-k', data, '-F')

    def start_server(self):
        super().start_server()
        # SIGINT: end now, whoever is connected.
        self.addCleanup(self.end, self.process, signal.SIGINT)

    def is_ready(self):
        # It listens before it accepts connections.
        if not listens(self.port):
            return False
        with open(os.path.join(self._options['cwd'],
                               'postmaster.pid')) as stream:
            return stream.read().split()[-1] == 'ready'

    def stop_server(self):
        self.end(self.process, signal.SIGINT)


class MariaDB(_Database):
    """An empty database; ``url`` for SQLAlchemy."""

    def prepare(self):
        install = program('mariadb-install-db')
        mariadbd = program('mariadbd', '/usr/sbin', '/usr/local/sbin')
        data = self.make_data()
        # Else it writes to the folder of the system's own server.
        common = ('--no-defaults', f'--datadir={data}')
        self._options['env'] = {**os.environ, 'TMPDIR': data}
        self.run_to_end(install, *common, '--skip-test-db',
                        '--auth-root-authentication-method=normal',
                        **self._options)
        self.url = f'mysql+pymysql://root@127.0.0.1:{self.port}/mysql'
        return (mariadbd, *common, f'--port={self.port}',
                '--bind-address=127.0.0.1', f'--socket={data}/socket',
                f'--pid-file={data}/pid', '--skip-name-resolve',
                '--innodb-flush-log-at-trx-commit=0')


class GaleraNode(MariaDB):
    """A node of a Galera cluster, which accepts writes as its other nodes.

    All nodes begin with the same empty database.

    :param first: GaleraNode to join, None: a new cluster
    """

    def __init__(self, first=None):
        super().__init__()
        self._first = first

    def prepare(self):
        provider = _existing('/usr/lib/galera/libgalera_smm.so',
                             '/usr/lib/libgalera_smm.so')
        self.peers_at, incremental, receiver = (
            f'127.0.0.1:{free_port()}' for _ in range(3))
        joined = self._first.peers_at if self._first else ''
        # The second node keeps the quorum when the first dies.
        return super().prepare() + (
            '--wsrep-on=ON', f'--wsrep-provider={provider}',
            f'--wsrep-cluster-address=gcomm://{joined}',
            '--binlog-format=ROW', '--innodb-autoinc-lock-mode=2',
            '--wsrep-sst-method=rsync', '--wsrep-node-address=127.0.0.1',
            f'--wsrep-sst-receive-address={receiver}',
            '--wsrep-provider-options='
            f'gmcast.listen_addr=tcp://{self.peers_at};'
            f'ist.recv_addr={incremental};gcache.size=16M;'
            f'pc.weight={2 if joined else 1}')

    def is_ready(self):
        engine = sa.create_engine(self.url)
        try:
            with engine.connect() as connection:
                return connection.exec_driver_sql(
                    "SHOW STATUS LIKE 'wsrep_ready'").one()[1] == 'ON'
        except sa.exc.DBAPIError:
            return False
        finally:
            engine.dispose()


class Redis(Daemon):
    """An empty Redis; ``url`` for tooz."""

    scheme = 'redis'

    def prepare(self):
        return (program('redis-server'), '--port', str(self.port), '--bind',
                '127.0.0.1', '--dir', self.folder, '--save', '',
                '--appendonly', 'no')


class Etcd(Daemon):
    """An empty etcd; ``url`` for tooz."""

    scheme = 'etcd3+http'

    def prepare(self):
        clients = f'http://127.0.0.1:{self.port}'
        peers = f'http://127.0.0.1:{free_port()}'
        return (program('etcd'), '--data-dir', f'{self.folder}/data',
                '--listen-client-urls', clients,
                '--advertise-client-urls', clients,
                '--listen-peer-urls', peers, '--initial-advertise-peer-urls',
                peers, '--initial-cluster', f'default={peers}')


class ZooKeeper(Daemon):
    """An empty ZooKeeper; ``url`` for tooz."""

    #: It wants a Java machine, which is ten times what the others want.
    required = False
    scheme = 'zookeeper'

    def prepare(self):
        path = self.write('zoo.cfg', f'''
            dataDir={self.folder}
            clientPort={self.port}
            clientPortAddress=127.0.0.1
            tickTime=500
            admin.enableServer=false
            ''')
        return (program('zkServer.sh', '/usr/share/zookeeper/bin'),
                'start-foreground', path)


_WSGI_SERVER = '''
    import importlib
    import sys
    from werkzeug import serving
    module, name = sys.argv[1].split(':')
    port = int(sys.argv[2])
    # Some applications take the words of the command line for theirs.
    del sys.argv[1:]
    serving.WSGIRequestHandler.protocol_version = 'HTTP/1.1'
    serving.WSGIRequestHandler.disable_nagle_algorithm = True
    serving.run_simple('127.0.0.1', port, getattr(
        importlib.import_module(module), name), threaded=True)
'''


_GNOCCHI_API = '''
    import sys
    from gnocchi import opts, service
    from gnocchi.rest import app
    from werkzeug import serving
    opts.set_defaults()
    conf = service.prepare_service(
        args=[], default_config_files=[sys.argv[1]])
    serving.WSGIRequestHandler.protocol_version = 'HTTP/1.1'
    serving.WSGIRequestHandler.disable_nagle_algorithm = True
    serving.run_simple('127.0.0.1', int(sys.argv[2]), app.load_app(conf),
                       threaded=True)
'''


class Gnocchi(Daemon):
    """A real Gnocchi: API, metricd, files, PostgreSQL as its index.

    :ivar url: of the API; ``gnocchi-basic`` authentication, user "admin"
    """

    def __init__(self, max_limit=1000):
        super().__init__()
        self._max_limit = max_limit

    def prepare(self):
        upgrade = program('gnocchi-upgrade')
        metricd = program('gnocchi-metricd')
        # The interpreter that has Gnocchi.
        with open(upgrade) as script:
            python = script.readline().lstrip('#!').strip()
        database = self.useFixture(PostgreSQL())
        configuration = self.write('gnocchi.conf', f'''
            [DEFAULT]
            coordination_url = file://{self.folder}/coordination
            parallel_operations = 1
            [api]
            auth_mode = basic
            max_limit = {self._max_limit}
            [indexer]
            url = {database.url}
            [storage]
            driver = file
            file_basepath = {self.folder}/storage
            [incoming]
            driver = file
            file_basepath = {self.folder}/incoming
            [metricd]
            workers = 1
            metric_processing_delay = 1
            metric_reporting_delay = -1
            ''')
        for name in ('coordination', 'storage', 'incoming'):
            os.mkdir(os.path.join(self.folder, name))
        self.run_to_end(upgrade, '--config-file', configuration,
                        '--sacks-number', '8')
        self.start(metricd, '--config-file', configuration)
        return (python, '-c', textwrap.dedent(_GNOCCHI_API), configuration,
                str(self.port))

    def is_ready(self):
        return answers(self.url + '/v1/status')

    def settled(self, patience=START_SECONDS * 5):
        """Return once every measure is processed.

        :param patience: longest wait, seconds
        """
        limit = time.monotonic() + patience
        while True:
            request = urllib.request.Request(
                self.url + '/v1/status?details=true',
                headers={'Authorization': 'Basic YWRtaW46'})
            status = None
            # Counting the files that metricd removes meanwhile may fail.
            with contextlib.suppress(urllib.error.HTTPError):
                with urllib.request.urlopen(  # nosec
                        request, timeout=30) as response:
                    status = json.load(response)
                if not status['storage']['summary']['measures']:
                    return
            if time.monotonic() > limit:
                raise RuntimeError(f'Gnocchi is still busy: {status}')
            time.sleep(.2)


class Prometheus(Daemon):
    """A real Prometheus with history that was recorded elsewhere.

    :param metrics: text in the OpenMetrics format
    :param arguments: further arguments of the program
    :param patience: longest time to take it in, seconds
    """

    def __init__(self, metrics, arguments=(), patience=120):
        super().__init__()
        self._metrics = metrics
        self._arguments = arguments
        self._patience = patience

    def prepare(self):
        prometheus = program('prometheus')
        self.take_in(self._metrics)
        configuration = self.write('prometheus.yml',
                                   'global: {scrape_interval: 1h}\n')
        return (prometheus, f'--config.file={configuration}',
                f'--storage.tsdb.path={self.folder}/data',
                '--storage.tsdb.retention.time=100y',
                f'--web.listen-address=127.0.0.1:{self.port}',
                *self._arguments)

    def is_ready(self):
        return answers(self.url + '/-/ready')

    def take_in(self, metrics):
        """Add to the history; the server must not run.

        :param metrics: as of the constructor
        """
        promtool = program('promtool')
        history = os.path.join(self.folder, 'history')
        with open(history, 'w') as stream:
            stream.writelines(metrics)
        self.run_to_end(promtool, 'tsdb', 'create-blocks-from', 'openmetrics',
                        '--max-block-duration=720h', history,
                        os.path.join(self.folder, 'data'),
                        timeout=self._patience)


class VictoriaMetrics(Daemon):
    """A real VictoriaMetrics with history that was recorded elsewhere.

    :param series: list of (name, labels, times, values)
    :param arguments: further arguments of the program
    """

    def __init__(self, series, arguments=()):
        super().__init__()
        self._series = series
        self._arguments = arguments

    def prepare(self):
        return (program('victoria-metrics'),
                f'-storageDataPath={self.folder}/data',
                '-retentionPeriod=100y',
                f'-httpListenAddr=127.0.0.1:{self.port}', *self._arguments)

    def is_ready(self):
        return answers(self.url + '/health')

    def start_server(self):
        super().start_server()
        answer = requests.post(self.url + '/api/v1/import', data='\n'.join(
            json.dumps({'metric': {'__name__': name, **labels},
                        'values': values.tolist(),
                        'timestamps': [round(time * 1000)
                                       for time in times.tolist()]})
            for name, labels, times, values in self._series), timeout=120)
        answer.raise_for_status()
        requests.get(self.url + '/internal/force_flush',
                     timeout=60).raise_for_status()


class _WsgiServer(Daemon):
    """An application of WSGI, served by this Python."""

    def application(self, name, **environment):
        """Return the command of an application, "module:name"."""
        self._options['env'] = {**os.environ, **environment}
        return (sys.executable, '-c', textwrap.dedent(_WSGI_SERVER), name,
                str(self.port))


class Keystone(_WsgiServer):
    """A real keystone with SQLite and one user, an admin.

    :ivar url: of the API, without its version
    :ivar auth: options of the plugin "password" of keystoneauth1
    """

    def prepare(self):
        manage = program('keystone-manage')
        self.auth = {
            'auth_type': 'password', 'auth_url': self.url + '/v3',
            'username': 'admin', 'password': 'not a secret',
            'project_name': 'admin', 'user_domain_id': 'default',
            'project_domain_id': 'default'}
        self.write('keystone.conf', f'''
            [database]
            connection = sqlite:///{self.folder}/keystone.db
            [fernet_tokens]
            key_repository = {self.folder}/fernet
            [fernet_receipts]
            key_repository = {self.folder}/fernet
            [credential]
            key_repository = {self.folder}/credential
            ''')
        for name in ('fernet', 'credential'):
            os.mkdir(os.path.join(self.folder, name), 0o700)
        owner = ('--keystone-user', str(os.getuid()),
                 '--keystone-group', str(os.getgid()))
        for command in (('db_sync',), ('fernet_setup', *owner),
                        ('credential_setup', *owner),
                        ('bootstrap', '--bootstrap-region-id', 'somewhere',
                         '--bootstrap-password', self.auth['password'],
                         '--bootstrap-public-url', self.url + '/v3/',
                         '--bootstrap-internal-url', self.url + '/v3/')):
            self.run_to_end(manage, '--config-dir', self.folder, *command)
        return self.application('keystone.wsgi.api:application',
                                OS_KEYSTONE_CONFIG_DIR=self.folder)

    def is_ready(self):
        return answers(self.url + '/v3')

    def register(self, kind, url):
        """Put a service into the catalog.

        :param kind: type of the service
        """
        methods = {'identity': {'methods': ['password'], 'password': {
            'user': {'name': self.auth['username'],
                     'password': self.auth['password'],
                     'domain': {'id': 'default'}}}}}
        scope = {'project': {'name': self.auth['project_name'],
                             'domain': {'id': 'default'}}}
        token = requests.post(
            self.url + '/v3/auth/tokens', timeout=60,
            json={'auth': {**methods, 'scope': scope}}
        ).headers['X-Subject-Token']

        def add(path, name, body):
            answer = requests.post(
                f'{self.url}/v3/{path}', json={name: body}, timeout=60,
                headers={'X-Auth-Token': token})
            answer.raise_for_status()
            return answer.json()[name]['id']

        add('endpoints', 'endpoint', {
            'interface': 'public', 'region_id': 'somewhere', 'url': url,
            'service_id': add('services', 'service', {'type': kind})})


class Aetos(_WsgiServer):
    """A real Aetos before a Prometheus, which asks a keystone who asks.

    :param prometheus: :class:`Prometheus`
    :param keystone: :class:`Keystone`
    """

    def __init__(self, prometheus, keystone):
        super().__init__()
        self._prometheus = prometheus
        self._keystone = keystone

    def prepare(self):
        if importlib.util.find_spec('aetos') is None:
            raise MissingProgram('aetos is not installed')
        os.mkdir(os.path.join(self.folder, '.aetos'))
        self.write('.aetos/aetos.conf', textwrap.dedent(f'''
            [prometheus]
            host = 127.0.0.1
            port = {self._prometheus.port}
            [keystone_authtoken]
            www_authenticate_uri = {self._keystone.url}/v3
            ''') + ''.join(
                f'{name} = {value}\n'
                for name, value in self._keystone.auth.items()))
        return self.application('aetos.wsgi.api:application',
                                HOME=self.folder)

    def is_ready(self):
        return answers(self.url)


class Ceilometer(Daemon):
    """A real Ceilometer API server of before Queens, with SQLite.

    Such a server needs a Python of its day: 8.1.5 runs on 3.6.

    :ivar url: of the API; no authentication
    """

    required = False

    def prepare(self):
        api, upgrade = program('ceilometer-api'), program('ceilometer-upgrade')
        path = self.write('ceilometer.conf', f'''
            [DEFAULT]
            transport_url = fake://
            api_paste_config = {self.folder}/api_paste.ini
            [database]
            connection = sqlite:///{self.folder}/ceilometer.db
            [oslo_policy]
            policy_file = {self.folder}/policy.json
            ''')
        self.write('api_paste.ini', '''
            [pipeline:main]
            pipeline = api-server
            [app:api-server]
            paste.app_factory = ceilometer.api.app:app_factory
            ''')
        rules = dict.fromkeys(
            ['segregation', 'telemetry:get_samples',
             'telemetry:create_samples', 'telemetry:compute_statistics',
             'telemetry:get_meters', 'telemetry:get_resources'], '')
        self.write('policy.json', json.dumps(
            {'context_is_admin': 'role:admin', **rules}))
        self.run_to_end(upgrade, '--config-file', path,
                        '--skip-gnocchi-resource-types')
        return (api, '-b', '127.0.0.1', '-p', str(self.port), '--',
                '--config-file', path)

    def is_ready(self):
        return answers(self.url + '/v2/capabilities')


class Neutron(Server):
    """A real neutron-server with SQLite, without authentication.

    :param mechanism_drivers: of ML2; with ovn there is an OVN southbound and
        a northbound database, without an ovn-northd
    :param down_seconds: an agent that told nothing for so long is down
    :ivar url: of the API
    """

    def __init__(self, mechanism_drivers='openvswitch,sriovnicswitch',
                 down_seconds=600):
        super().__init__()
        self._drivers = mechanism_drivers
        self._down_seconds = down_seconds

    def _setUp(self):
        super()._setUp()
        folder = os.path.dirname(program('neutron-db-manage'))
        self._python = shutil.which('python3', path=folder)
        paste = os.path.join(os.path.dirname(folder), 'etc', 'neutron',
                             'api-paste.ini')
        if self._python is None or not os.path.exists(paste):
            raise MissingProgram(f'a Neutron with its Python in {folder} and '
                                 f'{paste} is not installed')
        self._script = os.path.join(os.path.dirname(__file__),
                                    'neutron_api.py')
        ovn = 'ovn' in self._drivers.split(',')
        if ovn:
            self.northbound = self._database('nb', 'OVN_Northbound', [
                {'op': 'insert', 'table': 'NB_Global', 'row': {}}])
            self.southbound = self._database('sb', 'OVN_Southbound', [
                {'op': 'insert', 'table': 'SB_Global', 'row': {}}])
        self.port = free_port()
        self.url = f'http://127.0.0.1:{self.port}'
        self._file = self.write('neutron.conf', f'''
            [DEFAULT]
            core_plugin = ml2
            service_plugins = {'ovn-router' if ovn else 'qos,trunk'}
            auth_strategy = noauth
            api_paste_config = {paste}
            state_path = {self.folder}
            transport_url = fake://
            agent_down_time = {self._down_seconds}
            notify_nova_on_port_status_changes = false
            notify_nova_on_port_data_changes = false
            [database]
            connection = sqlite:///{self.folder}/neutron.sqlite
            [oslo_concurrency]
            lock_path = {self.folder}/locks
            [ml2]
            type_drivers = flat,vlan,geneve
            project_network_types = {'geneve' if ovn else 'vlan'}
            mechanism_drivers = {self._drivers}
            extension_drivers = {'' if ovn else 'qos'}
            [ml2_type_geneve]
            vni_ranges = 1:65536
            max_header_size = 38
            [ovn]
            ovn_nb_connection = {self.northbound if ovn else ''}
            ovn_sb_connection = {self.southbound if ovn else ''}
            ''')
        self.run_to_end(self._python, self._script, 'tables',
                        f'sqlite:///{self.folder}/neutron.sqlite')

    def serve(self):
        """Start to answer, with what has been put in so far."""
        self.process = self.start(self._python, self._script, 'serve',
                                  self._file, str(self.port))
        self.wait(self.process, lambda: answers(self.url))

    def _database(self, short, name, rows):
        """Return where a new database of OVN listens."""
        schema = os.path.join(
            os.path.dirname(os.path.dirname(program('ovn-sbctl'))), 'share',
            'ovn', f'ovn-{short}.ovsschema')
        if not os.path.exists(schema):
            raise MissingProgram(f'{schema} is not installed')
        path = os.path.join(self.folder, f'{short}.db')
        place = f'tcp:127.0.0.1:{free_port()}'
        self.run_to_end(program('ovsdb-tool'), 'create', path, schema)
        process = self.start(
            program('ovsdb-server', '/usr/sbin'), '--remote=p' + ':'.join(
                place.split(':')[i] for i in (0, 2, 1)),
            f'--unixctl={path}.ctl', path)
        self.wait(process, lambda: subprocess.run(
            [program('ovsdb-client'), 'list-dbs', place],
            capture_output=True, timeout=30).returncode == 0)
        self._transact(place, name, rows)
        return place

    def _transact(self, place, name, rows):
        done = subprocess.run(
            [program('ovsdb-client'), 'transact', place,
             json.dumps([name, *rows])], capture_output=True, text=True,
            timeout=30)
        # What the database refuses is an answer, too.
        if done.returncode or '"error"' in done.stdout:
            raise RuntimeError(f'ovsdb-client: {done.stdout}{done.stderr}')

    def register_chassis(self, name, host, address):
        """Do what the ovn-controller of a host and its metadata agent do."""
        def mapping(**values):
            return ['map', [[key.replace('_', '-'), value]
                            for key, value in values.items()]]

        self._transact(self.southbound, 'OVN_Southbound', [
            {'op': 'insert', 'table': 'Encap', 'uuid-name': 'e', 'row': {
                'type': 'geneve', 'ip': address, 'chassis_name': name}},
            {'op': 'insert', 'table': 'Chassis', 'uuid-name': 'c', 'row': {
                'name': name, 'hostname': host,
                'encaps': ['set', [['named-uuid', 'e']]],
                'other_config': mapping(
                    datapath_type='system', iface_types='geneve,gre,vxlan',
                    ovn_bridge_mappings='physnet:br-ex')}},
            {'op': 'insert', 'table': 'Chassis_Private', 'row': {
                'name': name, 'chassis': ['set', [['named-uuid', 'c']]],
                # It has seen all that Neutron will write.
                'nb_cfg': 10 ** 6, 'external_ids': ['map', [
                    ['neutron:ovn-metadata-id', str(uuid.uuid4())],
                    ['neutron:ovn-metadata-sb-cfg', str(10 ** 6)]]]}}])

    def ask(self, *words, given=''):
        """Return what Neutron's own code prints."""
        done = subprocess.run(
            [self._python, self._script, *words], input=given, timeout=120,
            text=True, capture_output=True)
        if done.returncode:
            raise RuntimeError(f'neutron_api.py {words[0]} exited with '
                               f'{done.returncode}: {done.stderr[-4000:]}')
        return done.stdout

    def report(self, states):
        """Take the states that agents report."""
        self.ask('report', self._file, given=json.dumps(states))
