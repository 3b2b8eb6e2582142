# SPDX-License-Identifier: Apache-2.0
"""Converts a live interval's attribution to the amounts that it adds to the counters.

Energies add up exactly in each domain: the owners' integer nJ are the measured nJ, and no owner's
are negative. So counters that add intervals up never fall, and always have the node's sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from qjoule.contract import LATENCY_BUCKETS
from qjoule.model.call_outcomes import Outcomes, Waits
from qjoule.model.interval import RowErrors, of_recordings
from qjoule.model.result import PARTS, Attribution, Domain, Row
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.shapes.shape import OtherId

OTHER = "other"  #: replaces all names beyond the bound
NAME_LENGTH = 128  #: of a process, a role, a server; text has a bound of its own
TEXT_LENGTH = 1024
_TAG = "tag:"


class Owner(NamedTuple):
    """Who energy and CPU time belong to. `name`: a role, or a process; empty where there is one."""

    kind: str  #: one of `result.PARTS`
    server: str
    name: str


class Shape(NamedTuple):
    """A statement on one server. `database` is empty where it is not known."""

    server: str
    database: str
    fingerprint: str


@dataclass(slots=True)
class Amounts:
    """What queries of one shape took. `latency`: calls in each of the kernel side's buckets.
    `waits`, `helpers` (threads that helped in parallel): None: recorded of none of them."""

    energy_nj: int = 0
    cpu_ns: int = 0
    calls: int = 0
    latency_ns: int = 0  #: summed over the calls in `latency`
    latency: list[int] = field(default_factory=lambda: [0] * LATENCY_BUCKETS)
    outcomes: Outcomes = field(default_factory=Outcomes)
    waits: Waits | None = None
    helpers: Waits | None = None

    def add(self, other: Amounts) -> None:
        self.energy_nj += other.energy_nj
        self.cpu_ns += other.cpu_ns
        self.calls += other.calls
        self.latency_ns += other.latency_ns
        if any(other.latency):
            self.latency = [a + b for a, b in zip(self.latency, other.latency, strict=True)]
        if any(other.outcomes):
            both = zip(self.outcomes, other.outcomes, strict=True)
            self.outcomes = Outcomes(*(a + b for a, b in both))
        self.waits = Waits.added((self.waits, other.waits))
        self.helpers = Waits.added((self.helpers, other.helpers))


@dataclass(slots=True)
class Spent:
    """CPU time and energy of an owner that has no queries."""

    cpu_ns: int = 0
    energy_nj: dict[str, int] = field(default_factory=dict)  #: by domain

    def add(self, other: Spent) -> None:
        self.cpu_ns += other.cpu_ns
        for domain, energy_nj in other.energy_nj.items():
            self.energy_nj[domain] = self.energy_nj.get(domain, 0) + energy_nj


@dataclass(slots=True)
class Query:
    """A shape's amounts in an interval, and what is known of it."""

    amounts: Amounts = field(default_factory=Amounts)
    error: RowErrors | None = None
    text: str = ""
    attach_mode: str = ""
    ids: tuple[OtherId, ...] = ()
    named: bool = False  #: whether it is one statement, whose text is known
    parts: int = 0  #: how many were added up

    def add(self, other: Query) -> None:
        self.error = added_errors(self.error, other.error) if self.parts else other.error
        self.parts += 1
        self.amounts.add(other.amounts)
        self.text, self.attach_mode = other.text or self.text, other.attach_mode or self.attach_mode
        self.ids, self.named = other.ids or self.ids, other.named or self.named


@dataclass(frozen=True)
class Interval:
    """One interval. `node_nj`: measured, by domain; `main`: the domain of the queries' energies."""

    seconds: float
    grade: str
    main: str
    node_nj: Mapping[str, int]
    owners: Mapping[Owner, Spent]
    queries: Mapping[Shape, Query]
    loss: Mapping[str, int]  #: records lost, by cause
    lost_cpu_ns: int
    named_cpu_ns: Mapping[str, tuple[int, int]]  #: by server: CPU time, and how much has a name
    windows: int
    unattributed: int
    policy: str = ""  #: who pays for power at rest


def added_errors(first: RowErrors | None, second: RowErrors | None) -> RowErrors | None:
    """Errors of a sum of energies; None if one of them is unknown."""
    return None if first is None or second is None else of_recordings((first, second))


def interval_of(result: Attribution, text_length: int = TEXT_LENGTH) -> Interval:
    """The interval of a live snapshot whose rows are by server and fingerprint."""
    rows = [*result.rows, *result.fixed]
    energies = {domain.name: _energies(rows, domain, result.main) for domain in result.domains}
    owners: dict[Owner, Spent] = {}
    queries: dict[Shape, Query] = {}
    main = result.main.name if result.domains else ""
    for index, row in enumerate(rows):
        spent = Spent(row.cpu_ns, {name: nj[index] for name, nj in energies.items()})
        owners.setdefault(_owner(row), Spent()).add(spent)
        if row.kind == "queries":
            energy_nj = spent.energy_nj.get(main, 0)
            queries.setdefault(_shape(row), Query()).add(_query(row, energy_nj, text_length))
    for name, nj in energies.items():
        for part, energy_nj in zip(PARTS, nj[len(rows) :], strict=True):
            if energy_nj:
                owner = Owner(part, "", OTHER if part in ("background", "other_processes") else "")
                owners.setdefault(owner, Spent()).add(Spent(0, {name: energy_nj}))
                if part == "queries" and name == main:
                    unlisted = Query(Amounts(energy_nj))
                    queries.setdefault(Shape("", "", OTHER), Query()).add(unlisted)
    return Interval(
        seconds=result.trace.duration_s,
        grade=result.energy_source.grade,
        main=main,
        node_nj={domain.name: domain.measured_nj for domain in result.domains},
        owners=owners,
        queries=queries,
        loss=result.trace.loss,
        lost_cpu_ns=result.trace.lost_cpu_ns,
        named_cpu_ns={
            safe(server.server): (server.cpu_ns, server.queries_ns + server.roles_ns)
            for server in result.servers
        },
        windows=result.windows,
        unattributed=result.unattributed_windows,
        policy=result.policy.get("idle", ""),
    )


def energies_of(result: Attribution) -> tuple[list[Row], list[int], int]:
    """The rows of an interval, the energy of each in the main domain, none below 0, and the
    queries' energy beyond their rows. All in nJ."""
    rows = [*result.rows, *result.fixed]
    if not result.domains:
        return rows, [0] * len(rows), 0
    energy_nj = _energies(rows, result.main, result.main)
    return rows, energy_nj[: len(rows)], energy_nj[len(rows) + PARTS.index("queries")]


class Tagged(NamedTuple):
    """A statement on one server, with one value of a tag."""

    tag: str
    value: str
    shape: Shape


def tagged_of(result: Attribution) -> dict[Tagged, Query]:
    """Sums an interval's rows by server, tag and fingerprint; rows with other keys are left out."""
    queries: dict[Tagged, Query] = {}
    for row in result.rows:
        tags = [key for key in row.keys if key.startswith(_TAG)]
        if len(tags) == 1 and "fingerprint" in row.keys:
            tag = tags[0]
            key = Tagged(safe(tag.removeprefix(_TAG)), safe(row.keys[tag]), _shape(row))
            queries.setdefault(key, Query()).add(_query(row, max(row.energy_nj, 0), 0))
    return queries


def safe(text: str, length: int = NAME_LENGTH) -> str:
    """A name as a label's value: one line, no control characters, bounded."""
    return shorten(sanitise(text[: 4 * length]), length)


def _energies(rows: Sequence[Row], domain: Domain, main: Domain) -> list[int]:
    """The energy of each row in a domain, then what each of `PARTS` has beyond its rows."""
    if domain is main:
        energies = [row.energy_nj for row in rows]
    else:
        energies = [row.energy_by_domain_nj.get(domain.name, 0) for row in rows]
    remaining = dict(domain.parts_nj)
    for row, energy_nj in zip(rows, energies, strict=True):
        remaining[row.kind] -= energy_nj
    return without_negatives([*energies, *(remaining[part] for part in PARTS)])


def without_negatives(values: Sequence[int]) -> list[int]:
    """Sets negative values to 0 and takes their amount from the largest; a sum >= 0 is kept."""
    below = -sum(value for value in values if value < 0)
    rest = [max(value, 0) for value in values]
    for index in sorted(range(len(rest)), key=lambda row: -rest[row]) if below else ():
        reduction = min(below, rest[index])
        rest[index] -= reduction
        below -= reduction
    return rest


def _owner(row: Row) -> Owner:
    if row.kind == "queries":
        return Owner("queries", safe(row.keys.get("server", row.server)), "")
    if row.kind == "background":
        return Owner("background", safe(row.server), safe(row.keys.get("role", "")))
    if row.kind == "other_processes":
        return Owner("other_processes", "", safe(row.keys.get("process", OTHER)))
    return Owner(row.kind, "", "")


def _shape(row: Row) -> Shape:
    database = safe(row.keys.get("database", ""))
    fingerprint = safe(row.keys.get("fingerprint", OTHER))
    return Shape(safe(row.keys.get("server", row.server)), database, fingerprint)


def _query(row: Row, energy_nj: int, text_length: int) -> Query:
    latency = list(row.latency_counts) or [0] * LATENCY_BUCKETS
    latency_ns = round(row.latency_ns_mean * row.timed) if row.latency_ns_mean is not None else 0
    return Query(
        Amounts(
            *(energy_nj, row.cpu_ns, row.calls, latency_ns, latency),
            row.outcomes or Outcomes(unanswered=row.calls, rowless=row.calls),
            *(row.waits, row.helpers),
        ),
        row.error,
        safe(row.shape, text_length),
        row.attach_mode,
        row.ids,
        named=_is_statement(row),
    )


def _is_statement(row: Row) -> bool:
    """False if the row stands for several statements, or its text has not arrived yet."""
    return bool(row.shape) and not row.shape.startswith("(") and row.shape != OTHER
