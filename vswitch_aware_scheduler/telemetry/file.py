# SPDX-License-Identifier: Apache-2.0
"""Telemetry from files: published traces and exports of a cloud.

The driver detects three formats by their content:

- GWA-T-12 (Bitbrains) CSV: a file, or a folder of ``<VM number>.csv``;
- the same data as ``.npz``: arrays vm, t0, dt, rx_KBps, tx_KBps;
- plain CSV: ``instance,time,egress_kbps,ingress_kbps`` and optional ``kpps``.

CSV files may be compressed with gzip. Received traffic is ingress and
transmitted traffic is egress of the instance. 1 KB/s is 1000 bytes/s, that is
8 kbit/s.

An error in the *structure* of a file (header, number of cells, a time or an
instance that cannot be parsed) raises TelemetryError with file and line,
because the rest of the file cannot be trusted. An error in one *rate* (an
empty cell, text) only means that this sample is missing: it is rejected,
counted, and logged once for each file. See also configuration/telemetry.rst.
"""

import array
import contextlib
import csv
import dataclasses
import datetime
import gzip
import io
import math
import os
import re
import struct
import uuid
import zipfile
import zlib

import numpy as np

from vswitch_aware_scheduler.common import checks
from vswitch_aware_scheduler.common import exceptions
from vswitch_aware_scheduler.common import logs
from vswitch_aware_scheduler.telemetry import base
from vswitch_aware_scheduler.traffic import series as rate_series

__all__ = ['DEFAULT_PERIOD_SECONDS', 'FileDriver', 'INSTANCE_NAMESPACE',
           'KBPS_PER_KBYTES', 'instance_uuid']

LOG = logs.get_logger(__name__)

#: Namespace of the uuids of instances that a file identifies otherwise. It
#: must never change, because stored models have these uuids.
INSTANCE_NAMESPACE = uuid.UUID('bcc7ba66-a018-5cbc-b4a2-75162d257fe2')

#: kbit/s in 1 KB/s.
KBPS_PER_KBYTES = 8.0

#: Period of an instance with fewer than two samples, which has no step between
#: samples.
DEFAULT_PERIOD_SECONDS = 300.0

#: A larger time (the year 5138 in seconds) is in milliseconds.
_MILLISECONDS_ABOVE = 1e11

_GWA_TIME = 'timestamp [ms]'
_GWA_INGRESS = 'network received throughput [kb/s]'
_GWA_EGRESS = 'network transmitted throughput [kb/s]'
_GWA_METADATA = {'cpu_cores': 'cpu cores',
                 'memory_kb': 'memory capacity provisioned [kb]'}
_GWA_FILE = re.compile(r'([0-9]+)\.csv(\.gz)?', re.ASCII)

_PLAIN_COLUMNS = ('instance', 'time', 'egress_kbps', 'ingress_kbps')

_FORMATS = ('a GWA-T-12 CSV file or a folder of them, an .npz trace, or CSV '
            'with the header ' + ','.join(_PLAIN_COLUMNS))

#: A number that is written with a comma, for decimals or for thousands.
_DECIMAL_COMMA = re.compile(r'[+-]?[0-9.]*(,[0-9]+)+(\.[0-9]*)?', re.ASCII)

#: A compressed file may expand to this number of bytes, or to this many times
#: its size if that is more.
_MOST_BYTES, _MOST_TIMES = 128 * 2**20, 40

#: Number of rows between two reports of progress.
_ROWS_PER_REPORT = 65536


def instance_uuid(number_or_name: int | str) -> str:
    """Return the uuid of an instance in a file.

    A uuid remains unchanged, in canonical form. A VM number, as an integer or
    in decimal digits, gets ``uuid5(INSTANCE_NAMESPACE, 'gwa-t-12/<number>')``
    in every format. Any other name gets ``uuid5(INSTANCE_NAMESPACE,
    'name/<name>')``, without surrounding spaces.

    :raises InvalidInput: if the name is empty or the number negative
    """
    if isinstance(number_or_name, str):
        name = number_or_name.strip()
        canonical = base.normalised_uuid(name)
        if canonical is not None:
            return canonical
        if not (name.isascii() and name.isdecimal()):
            if not name:
                raise exceptions.InvalidInput(
                    thing='name of an instance', value=number_or_name,
                    expected='a uuid, a VM number or a name')
            return str(uuid.uuid5(INSTANCE_NAMESPACE, f'name/{name}'))
        number = int(name)
    else:
        number = checks.check('VM number', number_or_name, checks.whole(0))
    return str(uuid.uuid5(INSTANCE_NAMESPACE, f'gwa-t-12/{number}'))


_PATH = checks.Kind('a path', lambda path: isinstance(
    path, (str, bytes, os.PathLike)), os.fspath)


class FileDriver(base.Driver):
    """Telemetry from a file or a folder, read again in every call."""

    def __init__(self, path: str | os.PathLike[str],
                 period_seconds: float | None = None):
        """Store the path. Opens nothing.

        :param path: file, or folder of GWA-T-12 CSV files
        :param period_seconds: sampling period of the samples, or None to
            determine it for each instance. An .npz file states its own period,
            which has to be equal.
        :raises InvalidInput: if an option has an invalid value
        """
        super().__init__(period_seconds)
        self._path = checks.check('path of telemetry files', path, _PATH)

    @property
    def source(self) -> str:
        """The path."""
        return os.fsdecode(self._path)

    def instances(self) -> list[base.Instance]:
        """Return the instances in the file or folder.

        A plain CSV file is read completely. ``cpu_cores`` and ``memory_kb``
        are those of the first row of a GWA-T-12 file. For ``X.npz`` they are
        read from ``vms_X.csv`` (columns vm, cpu_cores, mem_kb), if this file
        exists.

        :raises TelemetryError: if a file cannot be read
        """
        return self._format().instances()

    def _series(self, start, end, instances, progress):
        source = self._format()
        for samples in source.samples(instances, progress):
            yield self._rate_series(samples, start, end)

    def _format(self):
        """Return a reader for the format at the path."""
        path = self.source
        if os.path.isdir(path):
            return _GwaTrace(_numbered_files(path))
        with _translating_errors(path), open(path, 'rb') as stream:
            head = stream.read(4)
        if head.startswith(b'PK'):
            return _NpzTrace(path, self._period_seconds)
        with _text(path) as (_, text):
            header = text.readline(65536)
        if _GWA_TIME in _cells(header, ';'):
            name = re.sub(r'\.csv(\.gz)?$', '', os.path.basename(path))
            return _GwaTrace([(name, path)])
        if set(_PLAIN_COLUMNS) & set(_cells(header, ',')):
            return _PlainCsv(path)
        raise _error(path, 'line 1', _shown(header), _FORMATS)

    def _rate_series(self, samples, start, end):
        """Return the series of the samples of one instance.

        Samples at most half a period apart belong to two recordings of one
        instance, which some VMs of GWA-T-12 have. The later one is rejected as
        a duplicate, so that one recording is used.
        """
        period = samples.period_seconds or self._period_seconds
        if period is None:
            period = _usual_step(samples.times)
        inside = (samples.times >= start) & (samples.times < end)
        kpps = None if samples.kpps is None else samples.kpps[inside]
        series = rate_series.RateSeries.from_samples(
            samples.uuid, period, samples.times[inside],
            samples.egress_kbps[inside], samples.ingress_kbps[inside], kpps)
        if samples.cut_off and end == math.inf:
            # The time of the incomplete line is unknown: count the line as
            # missing only if all later samples are read.
            series = dataclasses.replace(
                series,
                refused=series.refused + rate_series.Refused(missing=1))
        keep = _at_a_distance(series.times, period / 2)
        if keep.all():
            return series
        return dataclasses.replace(
            series, times=series.times[keep], rates=series.rates[keep],
            refused=series.refused + rate_series.Refused(
                duplicate=int((~keep).sum())))


@dataclasses.dataclass
class _Samples:
    """The samples of one instance in a file, in any order; NaN if missing.

    ``period_seconds`` is None if the file does not state it. ``cut_off`` means
    that the last line belongs to this instance and is incomplete.
    """

    uuid: str
    times: np.ndarray
    egress_kbps: np.ndarray
    ingress_kbps: np.ndarray
    kpps: np.ndarray | None = None
    period_seconds: float | None = None
    cut_off: bool = False


class _NpzTrace:
    """A trace as arrays: vm (n,), t0, dt, rx_KBps (n, T), tx_KBps (n, T).

    :param period_seconds: required sampling period, or None
    """

    def __init__(self, path, period_seconds):
        self._path = path
        self._wanted_period = period_seconds

    def instances(self):
        with self._arrays() as arrays:
            numbers = self._numbers(arrays)
        metadata = self._metadata()
        return [base.Instance(instance_uuid(number), str(number),
                              metadata.get(number, {}))
                for number in numbers]

    def samples(self, uuids, progress):
        with self._arrays() as arrays:
            numbers = self._numbers(arrays)
            t0 = self._scalar(arrays, 't0')
            dt = self._scalar(arrays, 'dt')
            received = self._matrix(arrays, 'rx_KBps', len(numbers), None)
            sent = self._matrix(arrays, 'tx_KBps', *received.shape)
        if dt <= 0:
            raise self._wrong('dt', dt, 'seconds > 0')
        if not 0 <= t0 <= _MILLISECONDS_ABOVE:
            raise self._wrong('t0', t0, 'unix seconds')
        if self._wanted_period not in (None, dt):
            raise self._wrong(
                'dt', dt, f'{self._wanted_period:g}, the value of the option '
                f'period_seconds, or no such option')
        times = t0 + dt * np.arange(received.shape[1])
        rows = [(row, uuid_) for row, uuid_
                in enumerate(map(instance_uuid, numbers))
                if uuids is None or uuid_ in uuids]
        progress(0, len(rows))
        for done, (row, uuid_) in enumerate(rows, 1):
            yield _Samples(
                uuid_, times,
                KBPS_PER_KBYTES * sent[row].astype(float),
                KBPS_PER_KBYTES * received[row].astype(float),
                period_seconds=dt)
            progress(done, len(rows))

    @contextlib.contextmanager
    def _arrays(self):
        # Opened here, because np.load does not close a file that it cannot
        # read.
        with _translating_errors(self._path), \
                open(self._path, 'rb') as stream, \
                np.load(stream, allow_pickle=False) as arrays:
            most = _most_bytes(stream)
            if sum(part.file_size for part in arrays.zip.infolist()) > most:
                raise _too_large(self._path, most)
            yield arrays

    def _array(self, arrays, name, kinds, expected, is_valid):
        """Return an array of a kind of numbers that is valid."""
        if name not in arrays:
            raise self._wrong('arrays', ', '.join(sorted(arrays)),
                              'vm, t0, dt, rx_KBps and tx_KBps')
        value = np.asarray(arrays[name])
        if value.dtype.kind not in kinds or not is_valid(value):
            raise self._wrong(
                name, _shown(str(value)) if value.size == 1 else
                f'{value.dtype} of shape {value.shape}', expected)
        return value

    def _numbers(self, arrays):
        numbers = self._array(arrays, 'vm', 'iu', 'integers of shape (n,)',
                              lambda value: value.ndim == 1).tolist()
        if len(set(numbers)) != len(numbers) or min(numbers, default=0) < 0:
            raise self._wrong('vm', 'negative or repeated numbers',
                              'distinct numbers >= 0')
        return numbers

    def _scalar(self, arrays, name):
        return float(self._array(
            arrays, name, 'fiu', 'one finite number', lambda value:
            value.size == 1 and np.isfinite(value).all()).reshape(()))

    def _matrix(self, arrays, name, rows, columns):
        return self._array(
            arrays, name, 'fiu',
            f'numbers of shape ({rows}, {columns or "T"})',
            lambda value: value.ndim == 2 and value.shape[0] == rows
            and columns in (None, value.shape[1]))

    def _wrong(self, place, value, expected):
        return _error(self._path, place, value, expected)

    def _metadata(self):
        """Return {VM number: metadata} of the companion CSV file, if any."""
        folder, name = os.path.split(self._path)
        path = os.path.join(folder, f'vms_{os.path.splitext(name)[0]}.csv')
        if not os.path.exists(path):
            return {}
        metadata = {}
        with _text(path) as (_, text):
            rows = csv.reader(text)
            columns = ('vm', 'cpu_cores', 'mem_kb')
            names = next(rows, [])
            _check_columns(path, names, columns)
            at = [names.index(name) for name in columns]
            for row in filter(None, rows):
                try:
                    cell, *cells = (row[column] for column in at)
                    number = int(cell)
                except (ValueError, IndexError):
                    raise _error(path, f'line {rows.line_num}',
                                 _shown(','.join(row)),
                                 'vm, cpu_cores and mem_kb') from None
                metadata[number] = _numbers_only(
                    zip(('cpu_cores', 'memory_kb'), cells))
        return metadata


class _GwaTrace:
    """CSV files of GWA-T-12, one for each VM: [(VM number or name, path)].

    :param files: [(VM number or name, path)]
    """

    def __init__(self, files):
        self._files = files

    def instances(self):
        return [base.Instance(instance_uuid(name), name,
                              self._metadata(path))
                for name, path in self._files]

    def samples(self, uuids, progress):
        files = [(instance_uuid(name), path) for name, path in self._files]
        if uuids is not None:
            files = [item for item in files if item[0] in uuids]
        progress(0, len(files))
        for done, (uuid_, path) in enumerate(files, 1):
            yield self._samples(uuid_, path)
            progress(done, len(files))

    def _samples(self, uuid_, path):
        with _text(path) as (_, text):
            names, lines = self._header(path, text.readline()), text.read()
        at = [names.index(name)
              for name in (_GWA_TIME, _GWA_EGRESS, _GWA_INGRESS)]
        table, cut_off = _fast_table(lines, len(names)), False
        if table is None:
            table, cut_off = _careful_table(path, lines, names, at)
        else:
            table = table[:, at]
        times, egress, ingress = table.T
        times = np.where(times > _MILLISECONDS_ABOVE, times / 1000, times)
        return _Samples(uuid_, times, KBPS_PER_KBYTES * egress,
                        KBPS_PER_KBYTES * ingress, cut_off=cut_off)

    @staticmethod
    def _header(path, line):
        names = _cells(line, ';')
        _check_columns(path, names, (_GWA_TIME, _GWA_EGRESS, _GWA_INGRESS))
        return names

    def _metadata(self, path):
        with _text(path) as (_, text):
            names = self._header(path, text.readline())
            cells = _cells(text.readline(), ';')
        return _numbers_only(
            (key, cells[names.index(column)])
            for key, column in _GWA_METADATA.items()
            if column in names and names.index(column) < len(cells))


class _PlainCsv:
    """CSV with one row for each sample, of all instances in any order."""

    def __init__(self, path):
        self._path = path

    def instances(self):
        names = {}
        with _text(self._path) as (_, text):
            rows = csv.reader(text)
            at = self._header(rows).index('instance')
            names_seen = set()
            for row in rows:
                if row and row[at] not in names_seen:
                    names_seen.add(row[at])
                    names.setdefault(self._uuid(row[at], rows.line_num),
                                     row[at].strip())
        return [base.Instance(uuid_, name) for uuid_, name in names.items()]

    def samples(self, uuids, progress):
        total = 0
        with contextlib.suppress(OSError):
            total = os.path.getsize(self._path)
        progress(0, total)
        buffers = self._read(
            uuids, lambda done: progress(min(done, total), total))
        # A buffer is deleted after its instance was returned: the maximum is
        # the samples of the file and one series.
        for uuid_ in list(buffers):
            buffer = buffers.pop(uuid_)
            times, egress, ingress, *kpps = map(np.frombuffer, buffer.columns)
            yield _Samples(uuid_, times, egress, ingress,
                           kpps[0] if kpps else None, cut_off=buffer.cut_off)
        progress(total, total)

    def _read(self, uuids, report):
        """Return {uuid: _Buffer} of some instances, in the file's order."""
        buffers, by_name = {}, {}
        ignored = _Buffer(0)
        bad = _BadCells(self._path)
        with _text(self._path) as (raw, text):
            rows = csv.reader(text)
            names = self._header(rows)
            at_name, at_time = names.index('instance'), names.index('time')
            rates = [(name, names.index(name))
                     for name in ('egress_kbps', 'ingress_kbps', 'kpps')
                     if name in names]
            cells = len(names)
            for row in rows:
                if len(row) != cells:
                    if not any(map(str.strip, row)):
                        continue
                    self._accept_cut(rows, row, cells)
                    if len(row) > at_name + 1 and row[at_name] in by_name:
                        by_name[row[at_name]].cut_off = True
                    break
                name = row[at_name]
                buffer = by_name.get(name)
                if buffer is None:
                    uuid_ = self._uuid(name, rows.line_num)
                    if uuids is not None and uuid_ not in uuids:
                        buffer = ignored
                    else:
                        buffer = buffers.setdefault(
                            uuid_, _Buffer(1 + len(rates)))
                    by_name[name] = buffer
                if buffer is not ignored:
                    append_time, *append_rates = buffer.appends
                    append_time(self._time(row[at_time], rows.line_num))
                    for append, (column, at) in zip(append_rates, rates):
                        try:
                            append(float(row[at]))
                        except ValueError:
                            append(math.nan)
                            bad.note(rows.line_num, column, row[at])
                if not rows.line_num % _ROWS_PER_REPORT:
                    report(raw.tell())
        bad.log()
        return buffers

    def _header(self, rows):
        names = [name.strip().lower() for name in next(rows, [])]
        _check_columns(self._path, names, _PLAIN_COLUMNS, ('kpps',))
        return names

    def _accept_cut(self, rows, row, cells):
        """Check that a row with too few cells is the last one, and log it.

        :param rows: csv reader, of which ``row`` is the last row that was read
        :param row: list of texts
        :param cells: number of cells of the header
        :raises TelemetryError: if the row is not an incomplete last line
        """
        line = rows.line_num
        if len(row) > cells or any(rows):
            raise _error(self._path, f'line {line}',
                         f'{len(row)} cells in {_shown(",".join(row))}',
                         f'{cells} cells as in the header')
        LOG.warning('Telemetry file %s: line %d, the last one, is cut off '
                    'and was left out', self._path, line)

    def _uuid(self, name, line):
        try:
            return instance_uuid(name)
        except exceptions.InvalidInput:
            raise _error(self._path, f'line {line}: instance', repr(name),
                         'a uuid or a name') from None

    def _time(self, cell, line):
        try:
            return _seconds(cell)
        except ValueError:
            raise _error(self._path, f'line {line}: time', _shown(cell),
                         'unix seconds or an ISO 8601 time') from None


class _Buffer:
    """The samples of one instance while a file is read, as plain doubles.

    :param count: number of columns
    """

    __slots__ = ('columns', 'appends', 'cut_off')

    def __init__(self, count):
        self.columns = [array.array('d') for _ in range(count)]
        self.appends = [column.append for column in self.columns]
        self.cut_off = False


class _BadCells:
    """Counts the cells of a file that should be a rate but are not."""

    _EMPTY = frozenset(['', '-', 'na', 'n/a', 'nan', 'none', 'null'])

    def __init__(self, path):
        self._path = path
        self._count = 0
        self._first = None

    def note(self, line, column, cell):
        if cell.strip().lower() in self._EMPTY:
            return
        if _DECIMAL_COMMA.fullmatch(cell.strip()):
            # The whole file is written like this, or is ambiguous.
            raise _error(self._path, f'line {line}: {column}',
                         _shown(cell.strip()),
                         'a number with a decimal point, and no comma')
        self._count += 1
        self._first = self._first or (line, column, _shown(cell.strip()))

    def log(self):
        if self._first:
            LOG.warning(
                'Telemetry file %s: %d cells are not numbers, and their '
                'samples count as missing; the first one: line %d: %s: %s; '
                'expected a number', self._path, self._count, *self._first)


def _fast_table(lines, width):
    """Return the cells of GWA-T-12 lines as numbers, or None.

    None means that a line needs a closer check.
    """
    if not lines.strip():
        return np.empty((0, width))
    try:
        table = np.loadtxt(io.StringIO(lines), delimiter=';', comments=None,
                           ndmin=2)
    except ValueError:
        return None
    if table.shape[1] != width or not _times_usable(table).all():
        return None
    return table


def _times_usable(times):
    return np.isfinite(times) & (times >= 0)


def _careful_table(path, lines, names, at):
    """Return (rows of columns ``at``, whether the last line is cut off).

    Reads GWA-T-12 lines cell by cell: an invalid rate becomes NaN,
    and an error message names the number of the line.
    """
    numbered = [(number, line) for number, line
                in enumerate(lines.split('\n'), 2) if line.strip()]
    bad, rows = _BadCells(path), []
    for number, line in numbered:
        cells = line.split(';')
        if len(cells) == len(names) + 1 and not cells[-1].strip():
            cells.pop()
        if len(cells) < len(names) and number == numbered[-1][0]:
            bad.log()
            LOG.warning('Telemetry file %s: line %d, the last one, is cut '
                        'off and was left out', path, number)
            return np.array(rows, np.float64).reshape(-1, len(at)), True
        if len(cells) != len(names):
            raise _error(path, f'line {number}',
                         f'{len(cells)} cells in {_shown(line)}',
                         f'{len(names)} cells as in the header')
        row = []
        for column in at:
            try:
                row.append(float(cells[column]))
            except ValueError:
                row.append(math.nan)
                if column != at[0]:
                    bad.note(number, names[column], cells[column])
        if not _times_usable(np.array(row[0])):
            raise _error(path, f'line {number}: {names[at[0]]}',
                         _shown(cells[at[0]].strip()), 'unix seconds')
        rows.append(row)
    bad.log()
    return np.array(rows, dtype=float).reshape(-1, len(at)), False


def _numbered_files(folder):
    """Return [(VM number, path)] of a folder, by number."""
    paths = {}
    with _translating_errors(folder):
        names = sorted(os.listdir(folder))
    for name in names:
        match = _GWA_FILE.fullmatch(name)
        if match is None:
            continue
        number = int(match[1])
        if number in paths:
            raise _error(folder, f'files of VM {number}',
                         f'{os.path.basename(paths[number])} and {name}',
                         'one file')
        paths[number] = os.path.join(folder, name)
    if not paths:
        raise _error(folder, 'list of its files',
                     _shown(', '.join(names)) if names else 'none',
                     '<VM number>.csv of GWA-T-12')
    return [(str(number), paths[number]) for number in sorted(paths)]


def _most_bytes(stream):
    """Return the number of bytes to which a compressed file may expand."""
    return max(_MOST_BYTES, _MOST_TIMES * os.fstat(stream.fileno()).st_size)


def _too_large(path, most):
    return _error(
        path, 'expanded content', f'more than {most / 2**20:.0f} MiB',
        f'at most {_MOST_BYTES / 2**20:.0f} MiB, or {_MOST_TIMES} times the '
        f'size of the compressed file; expand a larger file')


class _Expanded(io.RawIOBase):
    """The expanded content of a gzip file, up to the limit."""

    def __init__(self, path, stream):
        super().__init__()
        self._path, self._most = path, _most_bytes(stream)
        self._left = self._most
        self._content = gzip.GzipFile(fileobj=stream)

    def readable(self):
        return True

    def readinto(self, buffer):
        count = self._content.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise _too_large(self._path, self._most)
        return count


@contextlib.contextmanager
def _text(path):
    """Open a text file, compressed or not: (file of bytes, file of text)."""
    with _translating_errors(path), contextlib.ExitStack() as stack:
        raw = stack.enter_context(open(path, 'rb'))
        packed = raw.read(2) == b'\x1f\x8b'
        raw.seek(0)
        stream = stack.enter_context(io.BufferedReader(_Expanded(path, raw))) \
            if packed else raw
        # utf-8-sig removes the byte order mark that spreadsheets write.
        yield raw, stack.enter_context(
            io.TextIOWrapper(stream, 'utf-8-sig'))


@contextlib.contextmanager
def _translating_errors(path):
    """Convert exceptions for a damaged file to TelemetryError."""
    try:
        yield
    except exceptions.VSwitchError:
        raise
    except FileNotFoundError:
        raise exceptions.TelemetryError(
            thing=f'telemetry file {path}', seen='does not exist',
            expected=_FORMATS) from None
    except OSError as error:
        raise _error(path, 'reading it', error.strerror or error,
                     'a readable file') from error
    except (EOFError, KeyError, MemoryError, NotImplementedError,
            RuntimeError, SyntaxError, ValueError, csv.Error, struct.error,
            zipfile.BadZipFile, zlib.error) as error:
        # Exceptions of np.load, zipfile, gzip, csv and the UTF-8 decoder for
        # damaged files or other formats.
        raise _error(path, 'content',
                     f'unreadable ({type(error).__name__}: '
                     f'{_shown(str(error))})', 'an undamaged file') from error


def _error(path, place, value, expected):
    return exceptions.TelemetryError(
        thing=f'telemetry file {path}: {place}', seen=value,
        expected=expected)


def _shown(text):
    """Return a value, shortened for a message."""
    text = text.rstrip('\r\n')
    return repr(text if len(text) <= 100 else text[:97] + '...')


def _cells(line, delimiter):
    """Return the cells of a header or a row, without spaces, lower case."""
    return [cell.strip().strip('"').lower()
            for cell in line.strip().split(delimiter)]


def _check_columns(path, names, required, optional=()):
    """Raise TelemetryError if a column is missing or occurs twice."""
    for name in (*required, *optional):
        count = names.count(name)
        if count > 1 or (count == 0 and name in required):
            raise _error(
                path, 'line 1: header', _shown(', '.join(names)),
                f'column {name!r} once and found it {count} times')


def _numbers_only(items):
    """Return the items whose text is a finite number, as a dictionary."""
    numbers = {}
    for key, text in items:
        with contextlib.suppress(ValueError):
            if math.isfinite(float(text)):
                numbers[key] = float(text)
    return numbers


def _seconds(cell):
    """Return the time in a cell of a plain CSV file, seconds UTC.

    :raises ValueError: if the cell has no time
    """
    try:
        seconds = float(cell)
    except ValueError:
        moment = datetime.datetime.fromisoformat(cell.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.timezone.utc)
        seconds = moment.timestamp()
    if seconds > _MILLISECONDS_ABOVE:
        seconds /= 1000
    if not 0 <= seconds < math.inf:
        raise ValueError(cell)
    return seconds


def _usual_step(times):
    """Return the most frequent step between times, in seconds.

    Steps from one second on are rounded to whole seconds, because clocks are
    imprecise. Of equally frequent steps the shortest is used, because gaps
    only lengthen steps. Unlike the median, the most frequent step remains the
    sampling period if two recordings drift relative to each other, as in three
    VMs of GWA-T-12.
    """
    steps = np.diff(np.unique(times))
    if not steps.size:
        return DEFAULT_PERIOD_SECONDS
    steps = np.where(steps >= 1, np.rint(steps), steps)
    values, counts = np.unique(steps, return_counts=True)
    return float(values[np.argmax(counts)])


def _at_a_distance(times, distance):
    """Return (n,) bool: more than ``distance`` after the last kept time."""
    keep = np.ones(times.size, dtype=bool)
    if (np.diff(times) > distance).all():
        return keep
    last = -math.inf
    for at, time in enumerate(times.tolist()):
        keep[at] = time - last > distance
        if keep[at]:
            last = time
    return keep
