# SPDX-License-Identifier: Apache-2.0
"""Copies the inventory of instances from Nova to the store.

:class:`NovaSource` reads instances from Nova, and their ports from Neutron.
:class:`FileSource` reads a file. :func:`update` updates the store: it reads
the changes since the last time, writes only differences, and reads everything
at intervals.

Nova does not report an instance as changed when a port is attached, detached
or gets another QoS policy. Therefore all ports are read at intervals of their
own. Nova is then asked for the instances whose ports differ.

A missing answer never means that there are no instances. An instance is only
removed if Nova reports it as deleted, or if a complete reading lacks it and
Nova then answers a request for this instance with HTTP 404. The instances of a
cell that does not answer therefore remain unchanged.

No configuration, no clock except the one that is passed.
"""

import collections
from collections.abc import Callable
import csv
import dataclasses

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler.clients import neutron
from vswitch_aware_scheduler.clients import nova
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import plain_text
from vswitch_aware_scheduler import store as model_store
from vswitch_aware_scheduler.vswitch import attachments as vswitch_attachments
from vswitch_aware_scheduler.vswitch import guarantee

__all__ = ['FileSource', 'InventoryUpdate', 'NovaSource', 'Reading',
           'make_source', 'update']

#: Changes are requested from this many seconds before the last known one,
#: because rows of a database become visible later than their time stamp.
OVERLAP_SECONDS = 120.0

#: Longest time between two updates of the age of the placements in the store.
_MARK_SECONDS = 3600.0

#: Seconds until everything is read again if a cell did not answer.
_RETRY_SECONDS = 3600.0

#: Maximum number of instances that are requested individually in a pass.
_MOST_ASKED = 500

#: Of an instance whose ports this process has not judged yet: (hash of its
#: ports, ids of those that do not name it, number of the reading).
_UNJUDGED = None, (), 0

#: Ports are read if this share of the interval has passed, because passes do
#: not begin at exactly equal intervals.
_DUE_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class Reading:
    """The result of reading a source.

    :ivar changed_until: time of the newest change in the result, seconds UTC
        by the clock of the source, or None
    :ivar has_ports: False if attachments and guarantees were not read; the
        stored ones remain
    :ivar judged: {instance uuid: what its ports were when its attachments
        were determined}, for :meth:`NovaSource.settle`
    """

    placements: dict
    deleted: frozenset = frozenset()
    unanswered: frozenset = frozenset()
    changed_until: float | None = None
    has_ports: bool = True
    judged: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class InventoryUpdate:
    """The result of an update.

    :ivar complete: whether everything was read, not only changes
    """

    complete: bool
    reported: int
    written: int
    removed: int


def update(store: model_store.Store, source: 'FileSource | NovaSource',
           clock: Callable[[], float], complete_seconds: float,
           ports_seconds: float = 0.0) -> InventoryUpdate:
    """Update the placements in a store.

    :raises TelemetryError: if the source cannot be read completely; nothing is
        written then
    """
    now = float(clock())
    last_update = store.inventory()
    since = _since(last_update, source, now, complete_seconds)
    stored = store.placements() if since is None or source.ports_due(
        now, ports_seconds) else None
    reading = source.read(since, stored)
    reported = reading.placements.keys() | reading.deleted
    if stored is None:
        stored = store.placements(reported)
    placements = reading.placements if reading.has_ports else {
        uuid: _with_ports_of(stored.get(uuid), placement)
        for uuid, placement in reading.placements.items()}
    changed = [placement for uuid, placement in placements.items()
               if stored.get(uuid) != placement]
    removed = stored.keys() & reading.deleted
    complete_at = now if since is None else last_update.complete_at
    if since is None:
        missing = stored.keys() - reported
        removed |= source.unknown(sorted(missing - reading.unanswered))
        if missing - removed:
            # Nova does not report changes in a cell that is down.
            complete_at -= max(complete_seconds - _RETRY_SECONDS, 0)
    until = reading.changed_until
    if last_update is not None and last_update.source == source.name:
        if not (changed or removed or since is None and until is not None
                or abs(now - last_update.seen_at) >= _MARK_SECONDS):
            # A new generation without changes would cause work for all
            # readers.
            source.settle(reading, now)
            return InventoryUpdate(since is None, len(reported), 0, 0)
        until = max(filter(None, (until, last_update.changed_until)),
                    default=None)
    store.write(
        placements=changed, remove_placements=removed, now=now,
        inventory=model_store.InventoryState(
            source.name, now, complete_at, until))
    source.settle(reading, now)
    return InventoryUpdate(since is None, len(reported), len(changed),
                           len(removed))


def _with_ports_of(stored, placement):
    """Return an InstanceRecord with what is stored about its ports."""
    return placement if stored is None else dataclasses.replace(
        placement, attachments=stored.attachments,
        guaranteed=stored.guaranteed)


def _since(last_update, source, now, complete_seconds):
    """Return the time from which to read changes; None: read everything."""
    if last_update is None or last_update.source != source.name \
            or last_update.changed_until is None \
            or not 0 <= now - last_update.complete_at < complete_seconds:
        return None
    return last_update.changed_until - OVERLAP_SECONDS


def make_source(path: str | None = None, access: dict | None = None,
                network_url: str | None = None,
                read_networks: bool = False) -> 'FileSource | NovaSource':
    """Return the source that options select.

    :param path: path of a file, or None to ask Nova
    :param network_url: URL of Neutron, or None for the service catalog
    :raises InvalidInput: if an option has an invalid value
    """
    if path is not None:
        return FileSource(path)
    network = None
    if read_networks:
        network = http.Access(**{**access, 'url': network_url})
    return NovaSource(http.Access(**access), network)


class FileSource:
    """Reads a CSV file with a header."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.name = f'file {path}'[:255]

    def ports_due(self, now: float, seconds: float) -> bool:
        """Return False: the file is always read completely."""
        return False

    def settle(self, reading: Reading, now: float) -> None:
        """Do nothing: the file has no ports."""

    def read(self, since: float | None = None,
             stored: dict | None = None) -> Reading:
        """Return the Reading of the whole file.

        :raises TelemetryError: if the file cannot be read
        """
        placements = {}
        try:
            with open(self._path, newline='', encoding='utf-8') as lines:
                rows = csv.DictReader(lines)
                for row in rows:
                    uuid = row['instance_uuid'].strip()
                    host, flavor, project = (
                        (row.get(name) or '').strip() or None
                        for name in ('host', 'flavor', 'project'))
                    networks = row.get('networks')
                    placements[uuid] = model_store.InstanceRecord(
                        uuid, host, flavor, project,
                        None if networks is None
                        else vswitch_attachments.Attachments(
                            tuple(sorted(networks.split()))))
            if not placements:
                raise ValueError('no instance')
        except (OSError, LookupError, ValueError, TypeError, csv.Error,
                AttributeError) as error:
            raise exceptions.TelemetryError(
                f'inventory {self.name}: seen '
                f'{type(error).__name__}: {http.shown(str(error))}; '
                f'expected CSV with the column instance_uuid') from error
        return Reading(placements)

    def unknown(self, instance_uuids: list[str]) -> set[str]:
        """Return the given instances: the file is always complete."""
        return set(instance_uuids)


class NovaSource:
    """Reads all instances of all projects from Nova. Opens nothing itself."""

    def __init__(self, access: http.Access, network: http.Access | None = None,
                 **sleep: Callable) -> None:
        self._access = access
        self._network = network
        self._sleep = sleep
        self._ports_read_at: float | None = None
        self._addresses = {}     # uuid -> MACs, while no ports were read
        self._types = {}         # network -> its type, or None
        self._judged = {}        # uuid -> as _UNJUDGED
        self._readings = 0
        # With networks it is a different source, which has to be read once
        # completely.
        self.name = f'nova {access.where()}' + (
            ' with networks' if network else '')

    def ports_due(self, now: float, seconds: float) -> bool:
        """Return whether all ports have to be read again."""
        return self._network is not None and (
            self._ports_read_at is None or not
            0 <= now - self._ports_read_at < _DUE_SHARE * seconds)

    def settle(self, reading: Reading, now: float) -> None:
        """Note that a reading is in the store.

        :param now: time at which the reading began, seconds UTC
        """
        if reading.has_ports:
            self._ports_read_at = now
            self._judged.update(reading.judged)
            self._addresses.clear()
        for uuid in reading.deleted:
            self._judged.pop(uuid, None)
            self._addresses.pop(uuid, None)

    def read(self, since: float | None = None,
             stored: dict | None = None) -> Reading:
        """Return the :class:`Reading` of all instances, or of changes.

        :param since: seconds UTC by Nova's clock, or None to read everything
        :param stored: {instance uuid: InstanceRecord} of the store, to read
            all ports; None reads no ports unless everything is read
        :raises TelemetryError: if the answer cannot be read completely
        """
        query = {} if since is None else {
            'changes-since': plain_text.iso_time(since)}
        placements, deleted, unanswered = {}, set(), set()
        addresses = {}
        until = None
        with self._nova() as client:
            for servers in client.servers(query):
                for server in servers:
                    if server.status == nova.DELETED:
                        deleted.add(server.uuid)
                    elif server.status == nova.UNKNOWN:
                        unanswered.add(server.uuid)
                    else:
                        placements[server.uuid] = _record(server)
                        addresses[server.uuid] = server.macs
                    if server.changed_at is not None:
                        until = max(server.changed_at,
                                    until or server.changed_at)
        has_ports, judged = True, {}
        if self._network is not None:
            has_ports = since is None or stored is not None
            self._addresses.update(addresses)
            if has_ports:
                if since is not None:
                    placements = {
                        **{uuid: stored[uuid] for uuid in self._addresses
                           if uuid in stored and uuid not in deleted},
                        **placements}
                placements, judged = self._with_ports(
                    placements, {} if since is None else {
                        uuid: record for uuid, record in stored.items()
                        if uuid not in placements and uuid not in deleted})
        return Reading(placements, frozenset(deleted), frozenset(unanswered),
                       until, has_ports, judged)

    def unknown(self, instance_uuids: list[str]) -> set[str]:
        """Return which of the given instances Nova does not know.

        Only the first few hundred instances are checked. The others count as
        known.

        :raises TelemetryError: if Nova does not answer
        """
        if not instance_uuids:
            return set()
        with self._nova() as client:
            return {uuid for uuid in instance_uuids[:_MOST_ASKED]
                    if client.server(uuid) is None}

    def _nova(self):
        return nova.NovaClient(self._access, self.name, **self._sleep)

    def _with_ports(self, placements, others):
        """Return InstanceRecords with what all ports of the cloud state.

        A tenant can write any uuid to ``device_id`` of its ports, also the
        uuid of an instance of another tenant. A port therefore counts for an
        instance only if it is bound to the host of the instance, which only
        Nova can do, and if it belongs to the instance's project or has an
        address that Nova lists for the instance. An address that Nova lists
        also counts if it has no port. Sub-ports of a trunk count for the
        instance of its parent port.

        :param others: the same of the other instances, as they are stored.
            Nova is asked for those that may have other networks than before
        :returns: ({instance uuid: InstanceRecord}, what :meth:`settle` stores)
        """
        with neutron.NeutronClient(self._network, self.name,
                                   **self._sleep) as client:
            ports = _Ports(client)
            self._types.update(client.network_types(
                ports.networks - self._types.keys()))
        self._readings += 1
        judged, renewed, suspects = {}, {}, []
        for uuid, record in others.items():
            last, ids, _ = self._judged.get(uuid, _UNJUDGED)
            if ports.fingerprint(uuid, ids) == last:
                continue
            attached = ports.attached({uuid: record}, {})[uuid]
            attachments, guaranteed = self._of(attached)
            if ids or attachments != record.attachments:
                suspects.append(uuid)
                continue
            judged[uuid] = self._judgement(ports, uuid, attached)
            if guaranteed != record.guaranteed:
                renewed[uuid] = dataclasses.replace(record,
                                                    guaranteed=guaranteed)
        suspects.sort(key=lambda uuid: self._judged.get(uuid, _UNJUDGED)[2])
        placements = {**placements, **self._ask(suspects[:_MOST_ASKED])}
        attached = ports.attached(placements, self._addresses)
        judged.update((uuid, self._judgement(ports, uuid, its_ports))
                      for uuid, its_ports in attached.items())
        for uuid, record in placements.items():
            attachments, guaranteed = self._of(attached[uuid])
            renewed[uuid] = dataclasses.replace(
                record, attachments=attachments, guaranteed=guaranteed)
        return renewed, judged

    def _judgement(self, ports, uuid, attached):
        ids = tuple(port.id for port in attached
                    if port is not None and port.device != uuid)
        return ports.fingerprint(uuid, ids), ids, self._readings

    def _of(self, attached):
        """Return (Attachments, guaranteed rates) of some ports."""
        return _attachments(attached, self._types), _guaranteed(attached)

    def _ask(self, instance_uuids):
        """Return {uuid: InstanceRecord} of instances that Nova has."""
        records = {}
        if not instance_uuids:
            return records
        with self._nova() as client:
            for uuid in instance_uuids:
                # The next reading of changes shows that one is deleted.
                server = client.server(uuid)
                if server is not None and server.status not in (
                        nova.UNKNOWN, nova.DELETED):
                    records[uuid] = _record(server)
                    self._addresses[uuid] = server.macs
        return records


class _Ports:
    """All ports and trunks of a cloud.

    :ivar networks: ids of the networks of ports that are bound or in a trunk
    """

    def __init__(self, client):
        sub_ports = client.sub_ports()
        ports = {port.id: port for port in client.ports()}
        # A sub-port uses no interface of its own. Nova does not know
        # sub-ports, which often have the address of their parent.
        self._sub_ports = {
            parent: [ports.get(number, neutron.Port(
                number, '', None, '', None, None, None))._replace(
                    vnic_type=None) for number in numbers]
            for parent, numbers in sub_ports.items()}
        for numbers in sub_ports.values():
            for number in numbers:
                ports.pop(number, None)
        self._ports = ports
        self._by_device, self._by_address = {}, {}
        for port in ports.values():
            if port.host is not None:
                self._by_device.setdefault(port.device, []).append(port)
                self._by_address.setdefault((port.mac, port.host),
                                            []).append(port)
        self.networks = {
            port.network for ports in (*self._by_device.values(),
                                       *self._sub_ports.values())
            for port in ports} - {None}

    def fingerprint(self, uuid, ids):
        """Return a hash that changes with the ports of an instance.

        :param ids: ids of its ports that do not name it as their device
        """
        named = {port.id: port for port in self._by_device.get(uuid, ())}
        named.update((number, self._ports.get(number)) for number in ids)
        return hash(frozenset(
            (number, port, *self._sub_ports.get(number, ()))
            for number, port in named.items()))

    def attached(self, placements, addresses):
        """Return {instance uuid: list of its Ports and their sub-ports}.

        None in a list represents an address without a port.

        :param addresses: {instance uuid: list of MAC addresses that Nova
            lists, one for each interface; None for an interface without
            address}
        """
        result = {}
        for uuid, placement in placements.items():
            its_ports = {port.id: port
                         for port in self._by_device.get(uuid, ())
                         if port.host == placement.host
                         and port.project == placement.project}
            listed = collections.Counter(addresses.get(uuid, ()))
            unlisted = sum(port.mac not in listed
                           for port in its_ports.values())
            unknown = max(listed.pop(None, 0) - unlisted, 0)
            for mac, count in listed.items():
                # A port of another tenant may have the same address.
                candidates = sorted(
                    self._by_address.get((mac, placement.host), ()),
                    key=lambda port: (
                        port.id not in its_ports,
                        port.project != placement.project,
                        port.device != uuid, port.id))[:count]
                its_ports.update((port.id, port) for port in candidates)
                unknown += count - len(candidates)
            result[uuid] = [
                *its_ports.values(), *[None] * unknown,
                *(child for number in its_ports
                  for child in self._sub_ports.get(number, ()))]
        return result


def _attachments(ports, types):
    """Return the Attachments of the given ports.

    :param ports: list of Port, None for an unknown port
    :param types: {network: its type, None if Neutron does not report it}
    """
    networks, without_tunnel, functions = [], [], 0
    for port in ports:
        if port is None:
            networks.extend(vswitch_attachments.UNKNOWN.networks)
            functions += vswitch_attachments.UNKNOWN.virtual_functions
            continue
        needs_tunnel = types.get(port.network) \
            not in vswitch_attachments.TYPES_WITHOUT
        (networks if needs_tunnel else without_tunnel).append(port.network)
        functions += port.vnic_type in vswitch_attachments.VNIC_TYPES
    return vswitch_attachments.Attachments(
        sorted(networks, key=str), sorted(without_tunnel), functions)


def _guaranteed(ports):
    """Return the sum of what ports guarantee, or None if it is unknown."""
    rates = [port and port.guaranteed for port in ports]
    total = tuple(map(sum, zip(guarantee.NONE, *filter(None, rates))))
    return None if None in rates and not any(total) else total


def _record(server):
    """Return the InstanceRecord of a server, without its ports."""
    return model_store.InstanceRecord(
        server.uuid, server.host, server.flavor, server.project,
        running=server.running, began_at=server.began_at,
        changed_at=server.changed_at, name=server.name)
