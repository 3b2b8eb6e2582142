# SPDX-License-Identifier: Apache-2.0
"""The first pass over a recording: finds what must be known before its first record is processed.

It finds perf's own processes, when its workload and the `perf stat` within it began and ended, and
the processes in which probes of servers were hit.

The servers of a recording come from `--server`, or from the probes that were hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from qjoule.api import QjouleError, UsageError
from qjoule.api.servers import flavours
from qjoule_studies.import_perf.lines import Record
from qjoule_studies.import_perf.queries import by_family, support_of
from qjoule_studies.import_perf.tasks import Imported, Name, parse_family, parse_name

_FAMILIES = "|".join(sorted(by_family(), reverse=True)).encode()
PROBE = re.compile(rb"qjoule(?:_[0-9]{1,7})?:((?:%s)_[a-z]+)_([0-9]{1,2})\Z" % _FAMILIES)
PERF = b"perf"
_FORKED = b"perf-exec"  #: what perf calls its child until that runs the workload
TASKS_MAX = 1 << 20  #: whose parents are remembered
_GAP_NS = 3_600_000_000_000  #: no machine does nothing for an hour: such a time is damaged


@dataclass
class Scan:
    """`begin_ns` to `end_ns`: while perf's workload ran; without one, the first to the last record.

    `hits`: by number of the probes, the processes and of which of their events; `parents` of all
    processes, `names` of those hit and of their parents.
    """

    begin_ns: int = 0
    end_ns: int = 0
    stat_begin_ns: int | None = None  #: `perf stat` began to count a moment before
    has_switches: bool = False
    tracers: set[int] = field(default_factory=set)
    hits: dict[int, dict[int, bytes]] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    names: dict[int, bytes] = field(default_factory=dict)


class _FirstPass:
    def __init__(self) -> None:
        self.scan = Scan()
        self.first_ns: int | None = None
        self.workload: int | None = None
        self.workload_end_ns: int | None = None

    def take(self, record: Record) -> None:
        scan, event = self.scan, record.event
        if event == b"sched:sched_switch":
            scan.has_switches = True
        elif event.startswith(b"qjoule"):
            if (match := PROBE.match(event)) and record.pid > 0:
                scan.hits.setdefault(int(match[2]), {}).setdefault(record.pid, match[1])
        elif event == b"FORK" and (of := parse_family(record)):
            if of.tgid == of.tid and len(scan.parents) < TASKS_MAX:
                scan.parents[of.tgid] = of.parent_tgid
                if record.t_ns and of.parent_tgid in scan.names:
                    scan.names[of.tgid] = scan.names[of.parent_tgid]
        elif event == b"COMM" and (named := parse_name(record)):
            self._named(record, named)
        elif event == b"EXIT":
            self._exited(record)
        if record.t_ns:
            if self.first_ns is None:
                self.first_ns = record.t_ns
            scan.end_ns = max(scan.end_ns, record.t_ns)

    def _exited(self, record: Record) -> None:
        of = parse_family(record)
        if of is not None and of.tid == self.workload and self.workload_end_ns is None:
            self.workload_end_ns = record.t_ns

    def _named(self, record: Record, named: Name) -> None:
        scan = self.scan
        if named.tgid != named.tid:
            return
        parent = scan.parents.get(named.tgid, 0)
        was = scan.names.get(named.tgid)
        if named.is_exec and record.t_ns:
            if self.workload is None and was == _FORKED and scan.names.get(parent) == PERF:
                self.workload = named.tgid
                scan.tracers.add(parent)
                scan.begin_ns = record.t_ns
                if named.comm == PERF:
                    scan.tracers.add(named.tgid)
            elif scan.stat_begin_ns is None and parent == self.workload in scan.tracers:
                scan.stat_begin_ns = record.t_ns  # what perf stat runs
        if len(scan.names) < TASKS_MAX:
            scan.names[named.tgid] = named.comm


def scan(records: Iterable[Record], name: str) -> Scan:
    """Raises `QjouleError` if there is nothing to make a trace of."""
    first_pass = _FirstPass()
    last_ns = 0
    for record in records:
        first_pass.take(record)
        if last_ns and record.t_ns > last_ns + _GAP_NS:
            raise QjouleError(
                f"{name}, line {record.line}: time leaps by more than an hour; it is damaged"
            )
        last_ns = max(last_ns, record.t_ns)
    result = first_pass.scan
    if not result.has_switches:
        raise QjouleError(
            f"{name} has no context switches: record with '-e sched:sched_switch', as "
            "'qjoule import perf --print-commands' shows"
        )
    if not result.begin_ns:
        result.begin_ns = first_pass.first_ns or 0
    if first_pass.workload_end_ns is not None:
        result.end_ns = first_pass.workload_end_ns
    if result.end_ns <= result.begin_ns:
        raise QjouleError(f"{name} ends as it begins: record for longer")
    return result


SERVERS_MAX = 16
_SPEC = re.compile(r"([0-9]{1,2})=([a-z]+)(\+pool)?,([0-9]{1,7}),([^,]{0,40}),(.{1,200})\Z", re.S)
_POOL = "+pool"


#: `reason` of a server's attach mode, once one was.
PROBED = "imported from perf: uprobes on the server's functions"


def parse_server(text: str) -> Imported:
    """`ID=KIND[+pool],PID,VERSION,NAME`. Raises `UsageError`."""
    match = _SPEC.match(text)
    if match is None or match[2] not in flavours() or not 0 < int(match[1]) <= SERVERS_MAX:
        raise UsageError(
            f"'{text[:80]}' is not ID=KIND,PID,VERSION,NAME, such as "
            "1=mariadb,812,10.11.6,mariadb:3306; --print-commands prints it"
        )
    number, kind, pool, pid, version, label = match.groups()
    return Imported(int(number), kind, frozenset([int(pid)]), label, version, pool is not None)


def server_option(server: Imported) -> str:
    """The option that `parse_server` reads."""
    (pid,) = server.tgids
    kind = f"{server.flavour}{_POOL if server.pool else ''}"
    return f"{server.id}={kind},{pid},{server.version},{server.label}"


def servers_of(named: tuple[Imported, ...], scan: Scan) -> tuple[Imported, ...]:
    """The named servers, and those known only from their probes, by number."""
    servers = {server.id: server for server in named}
    if len(servers) < len(named):
        raise UsageError("two --server have one ID: number them as --print-commands does")
    for number, hit in scan.hits.items():
        if number in {server.id for server in named}:
            continue
        for main, event in sorted(_mains(hit, scan).items()):
            free = number if number not in servers else max(*servers, *scan.hits) + 1
            servers[free] = _guessed(free, main, event, scan)
    return tuple(servers[number] for number in sorted(servers))


def _mains(hit: dict[int, bytes], scan: Scan) -> dict[int, bytes]:
    """Main processes, and which event they or their children hit. A uprobe fires in every process
    of a file, so these may be several servers. If a server has a process for each client, the
    process belongs to its parent.
    """
    mains = {}
    for tgid, event in hit.items():
        parent = scan.parents.get(tgid, 0)
        same = support_of(event).by_process and scan.names.get(tgid) == scan.names.get(parent)
        mains[parent if same and parent else tgid] = event
    return mains


def _guessed(number: int, main: int, event: bytes, scan: Scan) -> Imported:
    """A server whose kind is guessed from the name of its main process."""
    flavour = support_of(event).flavour(scan.names.get(main, b""))
    return Imported(number, flavour, frozenset([main]), f"{flavour}:pid-{main}")
