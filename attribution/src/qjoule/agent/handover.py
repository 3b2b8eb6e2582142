# SPDX-License-Identifier: Apache-2.0
"""Hands the counters over to the next agent, so that an orderly restart is no reset.

The file is written at an orderly end and removed when it is read. After a crash there is none:
the counters begin at 0, and their creation time says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qjoule.agent.degradation import DegradationLevel
from qjoule.agent.restarts import Restarts, Starts
from qjoule.contract import LATENCY_BUCKETS
from qjoule.metrics.counters import Counters, Limits, OwnerSeries, QuerySeries
from qjoule.metrics.interval import Amounts, Owner, Shape, Spent
from qjoule.model.call_outcomes import Outcomes, Waits
from qjoule.shapes.shape import OtherId
from qjoule.trace.durable import write_whole
from qjoule.typed_json import read_as

NAME = "counters.json"
VERSION = 1
MAX_BYTES = 64 << 20
#: Most processes, and most servers with hidden sessions, to remember as restarted for.
MAX_TRIED = 256


@dataclass(frozen=True)
class _Query:
    key: tuple[str, ...]
    created_s: float
    numbers: tuple[int, ...]  #: energy, CPU time, calls, latency
    latency: tuple[int, ...]
    text: str
    attach_mode: str
    ids: tuple[tuple[str, ...], ...]
    #: as `Outcomes`; None: of an agent that did not count them
    outcomes: tuple[int, ...] | None = None
    waits: tuple[int, ...] | None = None  #: as `Waits`
    helpers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class _Owner:
    key: tuple[str, ...]
    created_s: float
    cpu_ns: int
    energy_nj: dict[str, int]


@dataclass(frozen=True)
class _Node:
    domain: str
    grade: str
    energy_nj: int


@dataclass(frozen=True)
class _Saved:
    version: int
    created_s: float
    queries: tuple[_Query, ...]
    owners: tuple[_Owner, ...]
    node: tuple[_Node, ...]
    loss: dict[str, int]
    folded: dict[str, int]
    lost_cpu_ns: int
    windows: int
    unattributed: int
    intervals: int
    tried: tuple[int, ...] = ()
    shed: DegradationLevel = field(default_factory=DegradationLevel)
    starts: tuple[Starts, ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()


@dataclass
class Handover:
    """What one agent leaves to the next. `shed`: what is left out to keep the budget; `restarts`:
    who has caused starts, and for which servers."""

    counters: Counters
    shed: DegradationLevel = field(default_factory=DegradationLevel)
    restarts: Restarts = field(default_factory=Restarts)
    continued: bool = False  #: true if the counters are those of an earlier agent


def take(
    directory: Path | None,
    limits: Limits,
    now_s: float,
    say: Callable[[str], object] = lambda _message: None,
) -> Handover:
    """Returns the counters in a store, or new ones. `now_s`: Unix time. `say` logs why stored ones
    cannot be used."""
    new = Handover(Counters(limits, now_s))
    if directory is None:
        return new
    path = directory / NAME
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        path.unlink()
        if len(content) > MAX_BYTES:
            raise ValueError(f"{NAME} is too large")
        saved: _Saved = read_as(_Saved, json.loads(content), NAME)
        return _restored(saved, limits)
    except FileNotFoundError:
        return new
    except (OSError, ValueError, TypeError, RecursionError) as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        say(f"the counters begin at 0, as those before cannot be read: {reason}")
        return new


def leave(directory: Path, handover: Handover) -> None:
    """Writes the file for the next agent. Raises `OSError`."""
    counters = handover.counters
    saved = _Saved(
        VERSION,
        counters.created_s,
        tuple(_query(shape, series) for shape, series in counters.queries.items()),
        tuple(
            _Owner(tuple(owner), series.created_s, series.spent.cpu_ns, series.spent.energy_nj)
            for owner, series in counters.owners.items()
        ),
        tuple(_Node(domain, grade, nj) for (domain, grade), nj in counters.node_nj.items()),
        counters.loss,
        counters.folded,
        *(counters.lost_cpu_ns, counters.windows, counters.unattributed, counters.intervals),
        tuple(handover.restarts.tried[-MAX_TRIED:]),
        handover.shed,
        handover.restarts.starts,
        tuple(handover.restarts.hidden[-MAX_TRIED:]),
    )
    write_whole(directory / NAME, json.dumps(asdict(saved)).encode(), mode=0o600)


def _query(shape: Shape, series: QuerySeries) -> _Query:
    amounts = series.amounts
    numbers = (amounts.energy_nj, amounts.cpu_ns, amounts.calls, amounts.latency_ns)
    ids = tuple(tuple(part or "" for part in other) for other in series.ids)
    return _Query(
        *(
            tuple(shape),
            series.created_s,
            numbers,
            tuple(amounts.latency),
            series.text,
            series.attach_mode,
        ),
        *(ids, tuple(amounts.outcomes), amounts.waits, amounts.helpers),
    )


def _restored(saved: _Saved, limits: Limits) -> Handover:
    """The handover that a file contains. Raises `ValueError` or `TypeError` if it is damaged."""
    if saved.version != VERSION or not saved.shed.valid():
        raise ValueError(f"{NAME} is of another version, or its level cannot be")
    if not all(start.valid() for start in saved.starts):
        raise ValueError(f"{NAME} has starts that cannot be")
    counters = Counters(limits, saved.created_s)
    for query in saved.queries:
        energy_nj, cpu_ns, calls, latency_ns = _counts(query.numbers)
        if len(query.latency) != LATENCY_BUCKETS:
            raise ValueError(f"{NAME} has other latencies")
        # Outcomes that an older agent did not count are unknown; the counters must not fall.
        ended = (0, calls, 0, calls) if query.outcomes is None else _counts(query.outcomes)
        amounts = Amounts(
            *(energy_nj, cpu_ns, calls, latency_ns, _counts(query.latency)),
            Outcomes(*ended),
            *(_waits(query.waits), _waits(query.helpers)),
        )
        ids = tuple(OtherId(name, of or None, tool, why) for name, of, tool, why in query.ids)
        counters.queries[Shape(*query.key)] = QuerySeries(
            query.created_s, amounts, query.text, query.attach_mode, ids
        )
    for owner in saved.owners:
        _counts([owner.cpu_ns, *owner.energy_nj.values()])
        counters.owners[Owner(*owner.key)] = OwnerSeries(
            owner.created_s, Spent(owner.cpu_ns, owner.energy_nj)
        )
    counters.node_nj = {(node.domain, node.grade): node.energy_nj for node in saved.node}
    counters.loss, counters.folded = saved.loss, saved.folded
    counters.lost_cpu_ns, counters.windows = saved.lost_cpu_ns, saved.windows
    counters.unattributed, counters.intervals = saved.unattributed, saved.intervals
    _counts(
        [
            *counters.node_nj.values(),
            *counters.loss.values(),
            *counters.folded.values(),
            counters.lost_cpu_ns,
        ]
    )
    if not _adds_up(counters):
        raise ValueError(f"{NAME} has owners that have not the node's energy")
    counters.restore_members()
    restarts = Restarts(saved.starts, saved.tried, saved.hidden)
    return Handover(counters, saved.shed, restarts, continued=True)


def _waits(saved: tuple[int, ...] | None) -> Waits | None:
    return None if saved is None else Waits(*_counts(saved))


def _counts(values: Any) -> list[int]:
    counts = list(values)
    if any(value < 0 for value in counts):
        raise ValueError(f"{NAME} has a number below 0")
    return counts


def _adds_up(counters: Counters) -> bool:
    """Whether the owners' energies add up to the node's, in each domain."""
    domains: dict[str, int] = {}
    for (domain, _), energy_nj in counters.node_nj.items():
        domains[domain] = domains.get(domain, 0) + energy_nj
    for series in counters.owners.values():
        for domain, energy_nj in series.spent.energy_nj.items():
            domains[domain] = domains.get(domain, 0) - energy_nj
    return not any(domains.values())
