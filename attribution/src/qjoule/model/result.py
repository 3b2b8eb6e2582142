# SPDX-License-Identifier: Apache-2.0
"""The result of an attribution. The model makes it; reporters and exports show it.

Units are in the names. Energies of one domain add up exactly:
queries + background + other_processes + kernel + tracer + idle + residual = measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from qjoule.model.call_outcomes import Outcomes, Waits
from qjoule.model.impact import Factors
from qjoule.model.interval import RowErrors
from qjoule.model.labels import BY_THREAD, COUNTED, NOT_SELECTED
from qjoule.shapes.shape import OtherId

#: The parts of the total, in the order in which they are shown.
PARTS = ("queries", "background", "other_processes", "kernel", "tracer", "idle", "residual")
#: Those that ran. A row's share is of their energy.
OWNERS = PARTS[:5]


@dataclass(frozen=True)
class Domain:
    """One energy domain summed over packages (`package`, `core`, `dram`, ...)."""

    name: str
    measured_nj: int
    parts_nj: dict[str, int]  #: keyed by PARTS; adds up to measured_nj
    #: The errors of `owned_nj`, so that shares of several traces can be added up.
    owned_error: RowErrors | None = field(default=None, compare=False, repr=False)

    @property
    def owned_nj(self) -> int:
        """Energy of all owners, without idle and residual; rows' shares are of it."""
        return sum(nj for part, nj in self.parts_nj.items() if part in OWNERS)


class AloneTime(NamedTuple):
    """How long a group ran alone (with at least 95 % of the busy time), and what that was worth.

    `information_nats`: information of those times about the group's power factor. With them alone,
    the factor's standard error is exp(-`information_nats`) of what it is without any windows.
    """

    alone_s: float
    information_nats: float


@dataclass(frozen=True)
class Row:
    """One group of queries (or one fixed row), for the main domain.

    `keys` are the group's keys under their own names (`fingerprint`, `server`, ...). Intervals are
    95 %, (low, high). Those of joules are without the error of the total, which all rows have in
    common, unless `EnergySource.error_in_rows`; that of `share` (None: unknown) is also without all
    else that moves the rows alike, such as power at rest; `share_error` has its parts, in nJ of the
    energy of all owners. `energy_by_domain_nj` holds the other domains, and `energy_by_domain_ci95`
    their intervals in nJ. `power_factor` is (value, low, high): the group's power as a multiple of
    its weight, learned from the windows; None if it was not learned. `alone`: times in which it ran
    alone, since its factor is learned; None if it never did. `timed`: number of calls with a
    latency; `latency_counts`: how many are in each of the kernel side's buckets, and `outcomes`:
    how they ended, both of a live stream. `ids`: what other tools call its statements. `error` and
    `error_by_domain`: the parts of the intervals, so that rows of several traces can be added up;
    None if unknown. `shared_nj`: the part of `energy_nj` that comes from power that a package draws
    once, however many of its cores are busy; None if unknown. For transactions, `commit_nj` is the
    part of `energy_nj` that COMMIT or ROLLBACK took, and `commit_ns_mean` their duration; None
    without any. `waits`: None: not recorded. `helpers`: the same of threads that helped in
    parallel, and waited: `latency_ns` is for how long they helped; None: not recorded.
    `waiting_nj`: of the machine at rest while they waited (bpf/README.md, "The energy of waiting");
    None where idle energy is a row of its own, or power at rest or the waits are not known.
    `stolen_ns`: the part of `cpu_ns` in which the host of a virtual machine ran something else, and
    the row's threads did not run; None: not recorded.
    """

    keys: dict[str, str]
    shape: str
    server: str
    kind: str  #: one of PARTS
    calls: int
    energy_nj: int
    energy_nj_ci95: tuple[float, float]
    share: float | None  #: of the energy of all owners, 0 to 1; None: idle, residual, or unknown
    cpu_ns: int
    latency_ns_mean: float | None = None
    latency_ns_p50: float | None = None
    latency_ns_p95: float | None = None
    latency_ns_p99: float | None = None
    cycles: float | None = None
    instructions: float | None = None
    llc_misses: float | None = None
    attach_mode: str = ""
    flags: tuple[str, ...] = ()
    energy_by_domain_nj: dict[str, int] = field(default_factory=dict)
    energy_by_domain_ci95: dict[str, tuple[float, float]] = field(default_factory=dict)
    power_factor: tuple[float, float, float] | None = None
    alone: AloneTime | None = None
    shared_nj: int | None = None
    commit_nj: int | None = None
    commit_ns_mean: float | None = None
    waits: Waits | None = None
    helpers: Waits | None = field(default=None, compare=False)
    waiting_nj: float | None = None
    stolen_ns: int | None = None
    timed: int = 0
    latency_counts: tuple[int, ...] = field(default=(), compare=False, repr=False)
    outcomes: Outcomes | None = field(default=None, compare=False, repr=False)
    ids: tuple[OtherId, ...] = ()
    error: RowErrors | None = field(default=None, compare=False, repr=False)
    error_by_domain: dict[str, RowErrors] = field(default_factory=dict, compare=False, repr=False)
    share_ci95: tuple[float, float] | None = None
    share_error: RowErrors | None = field(default=None, compare=False, repr=False)

    @property
    def not_selected(self) -> bool:
        """All queries of a server outside of the selection (`--where`)."""
        return NOT_SELECTED in self.flags

    @property
    def exact(self) -> bool:
        """Whether its CPU time was observed. Otherwise its queries were only counted, and a
        regression gives its joules."""
        return self.attach_mode not in COUNTED

    @property
    def identity(self) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """Unique for each row of a trace: queries that are only counted have a row for each
        server, beside that of equal keys."""
        apart = "" if self.exact else f"{self.attach_mode} {self.server}"
        return self.kind, tuple(sorted(self.keys.items())), apart

    @property
    def by_thread(self) -> bool:
        """Threads of one role, of a server that was traced without query boundaries."""
        return self.kind == "background" and self.attach_mode == BY_THREAD

    @property
    def j_per_call(self) -> float | None:
        return self.energy_nj / 1e9 / self.calls if self.calls else None

    @property
    def j_per_call_ci95(self) -> tuple[float, float] | None:
        if not self.calls:
            return None
        low, high = self.energy_nj_ci95
        return (low / 1e9 / self.calls, high / 1e9 / self.calls)


@dataclass(frozen=True)
class ServerCoverage:
    """CPU time of one server, and how much of it has a named owner."""

    server: str
    cpu_ns: int
    queries_ns: int  #: of queries whose statement is known
    roles_ns: int  #: of threads outside of queries whose role is known

    @property
    def named(self) -> float:
        """Share of its CPU time that has a named owner, 0 to 1."""
        return (self.queries_ns + self.roles_ns) / self.cpu_ns


@dataclass(frozen=True)
class ServerChange:
    """A traced server that exited or was followed, or a server whose queries nobody saw.

    `since` and `until` are ISO 8601 in UTC; empty: before the trace, or until its end. `process`:
    the name of its row among the other processes, which has its joules.
    """

    what: str  #: exited, untraced, followed, unseen or hidden: as `trace.meta.Change`
    name: str
    since: str = ""
    until: str = ""
    pid: int = 0
    process: str = ""
    cpu_ns: int | None = None  #: the CPU time that it hides, if no row contains it
    why: str = ""


@dataclass(frozen=True)
class TraceInfo:
    """The origin of the figures, and what was lost."""

    host: str
    kernel: str
    cpu: str
    start: str  #: ISO 8601, UTC
    duration_s: float
    complete: bool
    loss: dict[str, int]  #: count by cause, only causes that happened
    lost_cpu_ns: int = 0
    changes: tuple[ServerChange, ...] = ()  #: in the order of their begin
    throttled: str = ""  #: that heat throttled CPUs, and how often; empty: not, or not known


#: Reason for leaving out a counter that appeared during the trace.
APPEARED = "this counter appeared while tracing; counters are opened only at the start"


MEASURED_PER_CORE = "measured per core"


@dataclass(frozen=True)
class EnergySource:
    name: str
    grade: str  #: measured, estimated, simulated, none
    reason: str
    domains: tuple[str, ...]
    main_domain: str  #: the domain that rows and totals are about
    total_error: float = 0.0  #: relative 95 % error of that domain's total
    other_errors: dict[str, float] = field(default_factory=dict)  #: the same of other domains
    error_in_rows: bool = False  #: whether the rows' intervals contain these errors
    #: Domains with wrong counters, and counters that nobody read: why.
    left_out: dict[str, str] = field(default_factory=dict)
    cores: str = ""  #: `MEASURED_PER_CORE` if counters of single cores helped to divide the total


@dataclass(frozen=True)
class ModelInfo:
    """Coefficients of the segment weight, and where they come from.

    `calibration` gives machine, date and tool; `calibration_flags` list what does not fit this
    trace. `memory` describes the evidence of earlier traces that was used. `notes` are for people:
    drift, what was refitted, what cannot be separated.
    """

    weight: str  #: "cpu_time" or "counters"
    coefficients: dict[str, float]
    calibrated: bool
    held_out_error: float | None  #: relative, from windows not used in the fit
    notes: tuple[str, ...] = ()
    held_out_errors: dict[str, float] = field(default_factory=dict)  #: the same, by domain
    calibration: str = ""
    calibration_flags: tuple[str, ...] = ()
    memory: str = ""


@dataclass(frozen=True)
class Attribution:
    """`rows` are the queries' groups, most energy first; `fixed` the other PARTS' rows."""

    trace: TraceInfo
    energy_source: EnergySource
    policy: dict[str, str]  #: {"idle": "separate" | "even" | "proportional", "by": "fingerprint"}
    model: ModelInfo
    domains: tuple[Domain, ...]  #: the main domain first
    rows: tuple[Row, ...]
    fixed: tuple[Row, ...]
    coverage: float  #: share of the traced servers' CPU time that has a named query
    servers: tuple[ServerCoverage, ...] = ()  #: of the servers that ran, by name
    windows: int = 0
    unattributed_windows: int = 0  #: gaps, resets, failed reads: no row contains their energy
    window_causes: dict[str, int] = field(default_factory=dict)  #: flagged windows by cause
    anomalies: dict[str, int] = field(default_factory=dict)  #: what a trace should not contain
    parts: tuple[TracePart, ...] = ()  #: if it is the sum of several traces: each of them
    impact: Factors | None = None  #: cost and emissions of its joules, if requested

    @property
    def tabled(self) -> tuple[Row, ...]:
        """Rows that are shown one by one: of queries, or of threads if there are no queries."""
        return (*self.rows, *(row for row in self.fixed if row.by_thread))

    @property
    def stolen_recorded(self) -> bool:
        """Whether rows say what the host of a virtual machine stole of their CPU time."""
        return any(row.stolen_ns is not None for row in (*self.rows, *self.fixed))

    @property
    def only_threads(self) -> bool:
        """Whether none of the traced servers has queries."""
        servers = [row for row in self.fixed if row.kind == "background" and row.server]
        return not self.rows and bool(servers) and all(row.by_thread for row in servers)

    @property
    def only_roles(self) -> frozenset[str]:
        """Servers without any known query in this trace."""
        threads = {row.server for row in self.fixed if row.by_thread}
        return frozenset(threads - {row.server for row in self.rows})

    @property
    def main(self) -> Domain:
        return self.domains[0]


@dataclass(frozen=True)
class TracePart:
    """One of the traces that an attribution adds up; its rows have the sum's keys."""

    name: str
    attribution: Attribution
