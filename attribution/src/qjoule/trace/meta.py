# SPDX-License-Identifier: Apache-2.0
"""`meta.json`: describes the trace and where its numbers come from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from qjoule import __version__
from qjoule.trace.vocabulary import FORMAT, FORMAT_VERSION

#: Fields of a domain or a server that are left out if they are unknown.
_MAY_BE_UNKNOWN = ("period_ns", "kind", "error", "die", "no_symbol")
#: Fields of `Meta` that are left out if they are None or empty.
_MAY_BE_MISSING = (
    *("imported", "meter", "idle_states", "small_cpus", "changes", "captured", "part", "modules"),
    "throttled",
)


@dataclass(frozen=True)
class Cpu:
    """`sibling` is the lowest CPU of the same core, possibly this one."""

    cpu: int
    package: int
    core: int
    sibling: int


@dataclass(frozen=True)
class EnergyInfo:
    """`grade`: measured, estimated, simulated or none. `reason`: why this source was chosen.
    `appeared`: counters, by their kernel names, that appeared during recording and were not read.
    """

    source: str = ""
    grade: str = "none"
    reason: str = ""
    appeared: tuple[str, ...] = ()


@dataclass(frozen=True)
class DomainInfo:
    """An energy domain.

    `range`: null if the counter does not wrap. `idle_w`: power at rest, null if unknown.
    `period_ns`: update period of the counter, null if unknown. `kind`: counter, power, computed or
    null, as in `qjoule.contract.DomainKind`. `error`: relative 95 % error of a total that is
    estimated from published power. `die`: of the package that it covers; null: the whole package.
    """

    package: int
    name: str
    unit_j: float
    range: int | None = None
    idle_w: float | None = None
    period_ns: int | None = None
    kind: str | None = None
    error: float | None = None
    die: int | None = None


#: Bounds of an idle state's values: more than any state takes, and the largest kernel counter.
MOST_US, MOST_COUNT = 10_000_000, 2**63 - 1
_MOST_STATES, _LONGEST_NAME = 64, 200


@dataclass(frozen=True)
class IdleState:
    """An idle state of `cpus` CPUs, on `disabled` of which it is switched off.

    `latency_us`: exit latency. `residency_us`: minimum sleep that saves energy. `usage`: number of
    entries; `time_us`: time spent in it, both summed over CPUs. None: unknown. Raises `ValueError`
    if a number is negative or absurd.
    """

    name: str
    latency_us: int
    residency_us: int | None = None
    cpus: int = 1
    disabled: int = 0
    usage: int | None = None
    time_us: int | None = None

    def __post_init__(self) -> None:
        times = (self.latency_us, self.residency_us or 0)
        counts = (self.cpus, self.disabled, self.usage or 0, self.time_us or 0)
        good = all(0 <= number <= MOST_US for number in times)
        good = good and all(0 <= number <= MOST_COUNT for number in counts)
        if not good or len(self.name) > _LONGEST_NAME:
            raise ValueError("an idle state has an impossible value")


#: More events than a recording can have: the kernel handles some hundred per CPU and second.
MOST_THROTTLED = 10**9


@dataclass(frozen=True)
class Throttled:
    """The highest count of any CPU of thermal throttling events of its core, or its package.

    None: not known. Raises `ValueError` if a number is negative or absurd.
    """

    core: int | None = None
    package: int | None = None

    def __post_init__(self) -> None:
        if not all(0 <= (one or 0) <= MOST_THROTTLED for one in (self.core, self.package)):
            raise ValueError("an impossible number of times that CPUs were throttled")


@dataclass(frozen=True)
class Server:
    """A traced server. `id` is the column `server` of tables. `reason`: why this attach mode was
    chosen.

    `no_symbol`: why the attach mode `symbol` is impossible; empty if possible, None if unknown.
    """

    id: int
    name: str = ""
    kind: str = ""
    version: str = ""
    exe: str = ""
    attach_mode: str = ""
    reason: str = ""
    no_symbol: str | None = None


EXITED, UNTRACED, FOLLOWED, UNSEEN = "exited", "untraced", "followed", "unseen"
HIDDEN = "hidden"


@dataclass(frozen=True)
class Change:
    """A traced server that exited or was followed, or a server whose queries were not seen.

    `what`: exited, untraced, followed (from then on as process `pid`), unseen (sessions that its
    attach mode misses, named by `why`), or hidden (sessions with TLS or compression; `why` the
    attach mode `symbol` is impossible). `name`: of the server in `servers`, or of an untraced
    process. `t_ns`: begin, None if before the trace. `until_ns`: end, None if until the trace's
    end. `process`: its name among the other processes. `cpu_ns`: hidden CPU time, if known.
    """

    what: str
    name: str
    t_ns: int | None = None
    until_ns: int | None = None
    pid: int = 0
    process: str = ""
    cpu_ns: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Module:
    """A file with code, to which frames of stacks refer by `id`. `build_id`: empty if it has
    none."""

    id: int
    path: str
    build_id: str = ""


@dataclass(frozen=True)
class Imported:
    """The source of a trace that qjoule did not record. `missing`: what the trace lacks."""

    tool: str
    version: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeterInfo:
    """An external meter: `name` of its program or file, `kind` power or counter as of a domain."""

    name: str
    kind: str
    unit_j: float


@dataclass(frozen=True)
class Captured:
    """A recording that is not converted yet: see `qjoule.spool`.

    `bytes`: size of the spool. `frames`, `queries` and `bytes` are 0 if the recording was cut off.
    `client_tags`: tags that clients set for a connection were requested.
    """

    frames: int = 0
    queries: int = 0
    bytes: int = 0
    client_tags: bool = False


@dataclass(frozen=True)
class Part:
    """A part that a flight recorder saved. The trace's `begin_ns` and `end_ns` bound it.

    `why`: dump, signal, key, query, shape or end. `what`: the same in words. `recorder_begin_ns`:
    begin of recording; the time from then to the part is not in the trace.
    """

    why: str
    what: str = ""
    recorder_begin_ns: int | None = None
    keep_s: float | None = None  #: duration that should have been saved


@dataclass(frozen=True)
class Meta:
    """The fields of `meta.json`, except `format` and `version`.

    `begin_ns` and `end_ns` bound the trace (CLOCK_MONOTONIC). Adding `realtime_offset_ns` to a time
    of the trace gives nanoseconds since 1970. `loss` and `rows` are known only at the end.
    """

    qjoule: str = __version__
    complete: bool = False
    stopped: str | None = None  #: why an incomplete trace ended, if known
    host: str = ""
    kernel: str = ""
    cpu: str = ""
    begin_ns: int | None = None
    end_ns: int | None = None
    realtime_offset_ns: int | None = None
    window_ns: int | None = None
    literals: bool = False  #: statements were captured with their literals
    counters: tuple[str, ...] = ()
    more_counters: tuple[str, ...] = ()  #: perf names of further counters, as in segments
    energy: EnergyInfo = EnergyInfo()
    domains: tuple[DomainInfo, ...] = ()
    cpus: tuple[Cpu, ...] = ()
    servers: tuple[Server, ...] = ()
    loss: dict[str, int] = field(default_factory=dict)
    lost_cpu_ns: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    imported: Imported | None = None  #: None: recorded by qjoule
    meter: MeterInfo | None = None  #: whose readings are in the table `meter`
    idle_states: tuple[IdleState, ...] = ()  #: of the CPUs, at the start of the recording
    small_cpus: tuple[int, ...] = ()  #: CPUs of a smaller kind of core than the others
    changes: tuple[Change, ...] = ()  #: of servers, while it was recorded
    captured: Captured | None = None  #: None if nothing is left to convert
    part: Part | None = None  #: None for a whole recording

    modules: tuple[Module, ...] = ()  #: code that frames of stacks refer to
    throttled: Throttled | None = None  #: during the recording; None if unknown

    def __post_init__(self) -> None:
        if len(self.idle_states) > _MOST_STATES:
            raise ValueError(f"more than {_MOST_STATES} idle states")

    @property
    def start(self) -> str:
        """When the trace began: ISO 8601, UTC; empty if unknown."""
        return self.moment(self.begin_ns)

    def moment(self, t_ns: int | None) -> str:
        """A time of the trace as ISO 8601, UTC; empty if unknown."""
        if t_ns is None or self.realtime_offset_ns is None:
            return ""
        try:
            moment = datetime.fromtimestamp((t_ns + self.realtime_offset_ns) * 1e-9, UTC)
        except (OverflowError, ValueError, OSError):
            return ""
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def to_json(self) -> str:
        head = {"format": FORMAT, "version": FORMAT_VERSION}
        fields = asdict(self)
        for name in _MAY_BE_MISSING:
            if not fields[name]:
                del fields[name]
        if not self.energy.appeared:
            del fields["energy"]["appeared"]
        fields["domains"] = [_without_unknown(domain) for domain in fields["domains"]]
        fields["servers"] = [_without_unknown(server) for server in fields["servers"]]
        return json.dumps(head | fields, indent=1) + "\n"


def _without_unknown(entry: dict[str, Any]) -> dict[str, Any]:
    """Leaves out unknown fields of a domain or server."""
    return {k: v for k, v in entry.items() if v is not None or k not in _MAY_BE_UNKNOWN}
