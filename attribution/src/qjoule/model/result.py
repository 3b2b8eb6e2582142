# SPDX-License-Identifier: Apache-2.0
"""What an attribution says. The model makes it, reporters and exports show it.

Units are in the names. Energies of one domain add up exactly:
queries + background + other_processes + kernel + tracer + idle + residual = measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from qjoule.model.impact import Factors
from qjoule.model.interval import RowErrors
from qjoule.model.labels import BY_THREAD, COUNTED, NOT_SELECTED

#: The parts of the total, in the order in which they are shown.
PARTS = ("queries", "background", "other_processes", "kernel", "tracer", "idle", "residual")


@dataclass(frozen=True)
class Domain:
    """One energy domain summed over packages (`package`, `core`, `dram`, ...)."""

    name: str
    measured_nj: int
    parts_nj: dict[str, int]  #: keyed by PARTS; adds up to measured_nj


@dataclass(frozen=True)
class Row:
    """One group of queries (or one fixed row), for the main domain.

    `keys` are the group's keys under their own names (`fingerprint`, `server`, ...).
    Intervals are 95 %, (low, high). `energy_by_domain_nj` holds the other domains, and
    `energy_by_domain_ci95` their intervals in nJ. `power_factor` is (value, low, high): how many
    times its weight this group's power is, learned from the windows; None: it was not learned.
    `timed`: how many calls' latencies the mean is of. `error` and `error_by_domain`: what the
    intervals are made of, so that rows of several traces can be added up; None: not known.
    `shared_nj`: how much of `energy_nj` is of the power that a package draws once, however many of
    its cores are busy; None: unknown. Of transactions, `commit_nj` is what of `energy_nj` COMMIT or
    ROLLBACK took, and `commit_ns_mean` how long it lasted; None: none was seen.
    """

    keys: dict[str, str]
    shape: str
    server: str
    kind: str  #: one of PARTS
    calls: int
    energy_nj: int
    energy_nj_ci95: tuple[float, float]
    share: float  #: of the measured energy, 0 to 1
    cpu_ns: int
    latency_ns_mean: float | None = None
    latency_ns_p50: float | None = None
    latency_ns_p95: float | None = None
    latency_ns_p99: float | None = None
    cycles: float | None = None
    instructions: float | None = None
    llc_misses: float | None = None
    rung: str = ""
    flags: tuple[str, ...] = ()
    energy_by_domain_nj: dict[str, int] = field(default_factory=dict)
    energy_by_domain_ci95: dict[str, tuple[float, float]] = field(default_factory=dict)
    power_factor: tuple[float, float, float] | None = None
    shared_nj: int | None = None
    commit_nj: int | None = None
    commit_ns_mean: float | None = None
    timed: int = 0
    error: RowErrors | None = field(default=None, compare=False, repr=False)
    error_by_domain: dict[str, RowErrors] = field(default_factory=dict, compare=False, repr=False)

    @property
    def not_selected(self) -> bool:
        """All queries of a server that were not asked for (`--where`)."""
        return NOT_SELECTED in self.flags

    @property
    def exact(self) -> bool:
        """Whether its CPU time was seen; else the row's queries were counted, its joules are a
        regression's."""
        return self.rung not in COUNTED

    @property
    def identity(self) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """What no two rows of a trace have in common: queries that are only counted have a row for
        each server, beside that of equal keys."""
        apart = "" if self.exact else f"{self.rung} {self.server}"
        return self.kind, tuple(sorted(self.keys.items())), apart

    @property
    def by_thread(self) -> bool:
        """Threads of one role, of a server that was traced without query boundaries."""
        return self.kind == "background" and self.rung == BY_THREAD

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
    """CPU time of one server, and how much of it has a name."""

    server: str
    cpu_ns: int
    queries_ns: int  #: of queries whose statement is known
    roles_ns: int  #: of threads outside of queries whose role is known

    @property
    def named(self) -> float:
        """Share of its CPU time that has a named owner, 0 to 1."""
        return (self.queries_ns + self.roles_ns) / self.cpu_ns


@dataclass(frozen=True)
class TraceInfo:
    """Where the figures come from, and what is missing from them."""

    host: str
    kernel: str
    cpu: str
    start: str  #: ISO 8601, UTC
    duration_s: float
    complete: bool
    loss: dict[str, int]  #: count by cause, only causes that happened
    lost_cpu_ns: int = 0


@dataclass(frozen=True)
class EnergySource:
    name: str
    grade: str  #: measured, estimated, simulated, none
    reason: str
    domains: tuple[str, ...]
    main_domain: str  #: the domain that rows and totals are about


@dataclass(frozen=True)
class ModelInfo:
    """Coefficients of the segment weight, and where they come from.

    `calibration` says of what machine, when and with what; `calibration_flags` what of it does not
    fit this trace. `notes` are for people: drift, what was refitted, what cannot be told.
    """

    weight: str  #: "cpu_time" or "counters"
    coefficients: dict[str, float]
    calibrated: bool
    held_out_error: float | None  #: relative, from windows not used in the fit
    notes: tuple[str, ...] = ()
    held_out_errors: dict[str, float] = field(default_factory=dict)  #: the same, by domain
    calibration: str = ""
    calibration_flags: tuple[str, ...] = ()


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
    unattributed_windows: int = 0  #: gaps, resets, failed reads: their energy is in no row
    window_causes: dict[str, int] = field(default_factory=dict)  #: flagged windows by cause
    anomalies: dict[str, int] = field(default_factory=dict)  #: what the trace should not hold
    parts: tuple[TracePart, ...] = ()  #: where it is the sum of several traces: each by itself
    impact: Factors | None = None  #: what its joules cost and emit, where that was asked for

    @property
    def tabled(self) -> tuple[Row, ...]:
        """Rows that are looked at one by one: of queries, and of threads where that is all."""
        return (*self.rows, *(row for row in self.fixed if row.by_thread))

    @property
    def only_threads(self) -> bool:
        """Whether no server that was traced has queries."""
        servers = [row for row in self.fixed if row.kind == "background" and row.server]
        return not self.rows and bool(servers) and all(row.by_thread for row in servers)

    @property
    def only_roles(self) -> frozenset[str]:
        """Servers of whose queries nothing is known, in this trace."""
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
