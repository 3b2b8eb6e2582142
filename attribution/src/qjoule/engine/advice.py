# SPDX-License-Identifier: Apache-2.0
"""Lists what could be saved in a trace, in joules of its own attribution.

Each advice is about one statement and rests on evidence of the trace: on sampled stacks (the
statement spends its time in functions that read whole tables, spill sorts, send columns, parse, or
start parallel workers), on the order of calls (N+1, polling), or on waits (lock convoys). A saving
is at most what the avoidable part took, so savings of one statement overlap. Savings below the
resolution are not listed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qjoule.engine.attribute import AttributionRequest
from qjoule.engine.call_patterns import CallTable, calls_of, convoys, loops, polls
from qjoule.engine.columns import texts_of
from qjoule.engine.flame import Flame, flame
from qjoule.engine.stacks import Name, PlanNode, RowStacks, sampling_nj
from qjoule.errors import QjouleError
from qjoule.model.result import Attribution, Row
from qjoule.servers.decoding import AVOIDABLE, EXECUTES, decoding_of_flavour
from qjoule.trace.reader import Trace

KINDS = ("scan", "spill", "width", "parsing", "n+1", "polling", "lock", "parallel")
#: Least share of a statement's samples, at the lower end of its interval.
LEAST = {"scan": 0.3, "spill": 0.02, "width": 0.1, "parsing": 0.2, "parallel": 0.3}
LEAST_SAVED = 0.01  #: of the joules of all queries; two recordings would not show less
LEAST_LOCK = 0.2  #: of a statement's latency
_FAR_ABOVE = 10  #: time reading rows over time sending them
_NAMED_FRAMES = 3
NO_STACKS = "the trace has no stacks: record it with --stacks"
NO_NAMES = "the server's functions have no names: install its debug symbols"
NO_WAITS = "waits are not recorded"
NO_REST = "power at rest is not known: calibrate, or record with --rest"
NO_SESSIONS = "sessions are not recorded"

#: Statements that have to read many more rows than they return, with any index.
_READS_MANY = re.compile(r"\b(group by|distinct|(count|sum|avg|min|max)\s*\()", re.IGNORECASE)
_WHERE = re.compile(r"\bwhere\b", re.IGNORECASE)
_ALL_COLUMNS = re.compile(r"\bselect\s+(distinct\s+)?(\w+\.)?\*", re.IGNORECASE)

Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Advice:
    """`saved_nj`: an upper bound. `figures`: the evidence; its names depend on the kind."""

    kind: str  #: one of KINDS
    row: Row  #: the statement
    saved_nj: float
    saved_nj_ci95: tuple[float, float]
    figures: Figures


@dataclass(frozen=True)
class Advised:
    """`advice`: largest saving first. `not_judged`: reasons by kind."""

    result: Attribution
    advice: tuple[Advice, ...]
    not_judged: Mapping[str, str]


def advise(trace: Trace, request: AttributionRequest, name: Name) -> Advised:
    """`request`: by fingerprint, with idle energy as its own row. `name`: see `flame`.

    Raises `QjouleError` for a trace without joules.
    """
    sampled = flame(trace, request, name)
    result = sampled.result
    if result.energy_source.grade == "none" or not result.domains:
        raise QjouleError(f"{trace.path} has no joules: record it with an energy source")
    rows = [stacks for stacks in sampled.rows if stacks.row.kind == "queries" and stacks.row.exact]
    calls, texts = calls_of(trace), texts_of(trace.table("shapes"))
    resolved = [s for s in rows if s.row.energy_nj > 0 and "below_resolution" not in s.row.flags]
    of_work = [*_by_stacks(resolved), *_by_calls(resolved, calls, texts)]
    every = [*of_work, *_by_waits(rows, calls, result)]
    advice = resolved_advice(every, result.main.parts_nj["queries"])
    return Advised(result, tuple(advice), _not_judged(trace, sampled, rows, calls))


def resolved_advice(every: Iterable[Advice], queries_nj: int) -> list[Advice]:
    """Keeps advice with a resolved saving, largest first. `queries_nj`: energy of all queries."""
    least_nj = max(LEAST_SAVED * queries_nj, 0.0)
    chosen = [a for a in every if a.saved_nj_ci95[0] > 0 and a.saved_nj >= least_nj]
    return sorted(chosen, key=lambda a: (-a.saved_nj, a.row.keys["fingerprint"], a.kind))


def _not_judged(
    trace: Trace, sampled: Flame, rows: list[RowStacks], calls: CallTable
) -> dict[str, str]:
    unknown = {s.kind for s in trace.meta.servers if not decoding_of_flavour(s.kind).avoidable}
    named = sum(_named(stacks) for stacks in rows)
    samples = sum(stacks.count for stacks in rows)
    reasons: dict[str, str] = {}
    if not samples or 2 * named < samples:
        reasons |= dict.fromkeys(LEAST, NO_NAMES if samples else NO_STACKS)
    elif unknown:
        reasons |= dict.fromkeys(LEAST, f"of {', '.join(sorted(unknown))} no functions are known")
    if not (calls.session != 0).any():
        reasons |= dict.fromkeys(("n+1", "polling"), NO_SESSIONS)
    if not any(stacks.row.waits for stacks in rows):
        reasons["lock"] = NO_WAITS
    elif sampled.result.main.parts_nj["idle"] <= 0:
        reasons["lock"] = NO_REST
    return {kind: reasons[kind] for kind in KINDS if kind in reasons}


def _named(stacks: RowStacks) -> int:
    """Counts samples with a function's name."""
    return sum(
        count
        for stack, count in stacks.samples.items()
        if sum(_is_function(frame) for frame in stack) >= _NAMED_FRAMES
    )


def _is_function(frame: str) -> bool:
    """Returns true if the frame is a function's name, not a node of a plan."""
    return "+0x" not in frame and not isinstance(frame, PlanNode)


# ---- sampled stacks ------------------------------------------------------------------------------


def _by_stacks(rows: list[RowStacks]) -> Iterator[Advice]:
    for stacks in rows:
        samples = {kind: _samples_in(stacks, AVOIDABLE[kind]) for kind in LEAST}
        for kind, count in samples.items():
            if not count or not _applies(kind, stacks.row.shape):
                continue
            if kind == "scan" and count < _FAR_ABOVE * samples["width"]:
                continue
            share = count / stacks.count
            energy_nj, by_sampling_nj = share * stacks.row.energy_nj, sampling_nj(stacks, count)
            if energy_nj - by_sampling_nj < LEAST[kind] * stacks.row.energy_nj:
                continue
            low, high = stacks.row.energy_nj_ci95
            half_nj = math.hypot(by_sampling_nj, share * (high - low) / 2)
            ends = energy_nj - half_nj, energy_nj + half_nj
            figures = {"samples": count, "of_samples": stacks.count}
            yield Advice(kind, stacks.row, energy_nj, ends, figures)


def _samples_in(stacks: RowStacks, names: frozenset[str]) -> int:
    """Counts a row's samples in these functions and their callees, except those that execute a
    plan."""
    either = names | EXECUTES
    return sum(
        count
        for stack, count in stacks.samples.items()
        if next((f for f in map(_function, reversed(stack)) if f in either), None) in names
    )


def _function(frame: str) -> str:
    """Returns the function's name without C++ parameters, template arguments and return type, as in
    `bool merge_many_buff<Sort_param>(THD*)`."""
    return frame.partition("(")[0].partition("<")[0].rpartition(" ")[2]


def _applies(kind: str, text: str) -> bool:
    """Returns true if the statement's text allows this kind of advice."""
    if kind == "scan":
        return bool(_WHERE.search(text)) and not _READS_MANY.search(text)
    return kind != "width" or bool(_ALL_COLUMNS.search(text))


# ---- the order of calls --------------------------------------------------------------------------


def _by_calls(
    rows: list[RowStacks], calls: CallTable, texts: Mapping[str, str]
) -> Iterator[Advice]:
    looped, polled = loops(calls, texts), polls(calls, texts)
    for stacks in rows:
        row, name = stacks.row, stacks.row.keys["fingerprint"]
        if (loop := looped.get(name)) and 2 * loop.calls >= row.calls:
            figures = {
                "calls": loop.calls,
                "loops": loop.loops,
                "after": texts.get(loop.after, loop.after),
                "rows_known": loop.rows_known,
            }
            yield _share_of_calls(row, "n+1", loop.calls - loop.loops, figures)
        elif (poll := polled.get(name)) and 2 * poll.calls >= row.calls:
            shared_nj = row.shared_nj or 0
            figures = {
                "calls": poll.calls,
                "period_ns": poll.period_ns,
                "rows_known": poll.rows_known,
                "awake_share": shared_nj / row.energy_nj,
            }
            yield _share_of_calls(row, "polling", poll.calls, figures)


def _share_of_calls(row: Row, kind: str, calls: int, figures: Figures) -> Advice:
    """Returns advice to save so many of a statement's calls."""
    low, high = row.energy_nj_ci95
    part = min(calls / max(row.calls, 1), 1.0)
    return Advice(kind, row, part * row.energy_nj, (part * low, part * high), figures)


# ---- waits ---------------------------------------------------------------------------------------


def _by_waits(rows: list[RowStacks], calls: CallTable, result: Attribution) -> Iterator[Advice]:
    """A wait has no joules of its own. What the machine draws at rest meanwhile is divided among
    the queries in progress, as `Row.waiting_nj` is."""
    rest_nj, (low, high) = _idle_nj(result)
    served_ns = sum(stacks.row.waits.latency_ns for stacks in rows if stacks.row.waits)
    whole_ns = max(served_ns, round(result.trace.duration_s * 1e9), 1)
    convoyed = convoys(calls)
    for stacks in rows:
        waits, convoy = stacks.row.waits, convoyed.get(stacks.row.keys["fingerprint"])
        if not waits or not convoy or waits.lock < LEAST_LOCK * waits.latency_ns:
            continue
        part = waits.lock / whole_ns
        figures = {
            "calls": convoy.calls,
            "together": convoy.together,
            "share": waits.lock / waits.latency_ns,
            "lock_ns_per_call": waits.lock / max(stacks.row.calls, 1),
        }
        yield Advice("lock", stacks.row, part * rest_nj, (part * low, part * high), figures)


def _idle_nj(result: Attribution) -> tuple[float, tuple[float, float]]:
    """Returns the energy at rest and its interval: the total minus the energy of all owners."""
    rest_nj, owned_nj = result.main.parts_nj["idle"], result.main.owned_nj
    error = result.main.owned_error
    if error is None:
        return float(rest_nj), (0.0, float(rest_nj))
    low, high = (float(end) for end in error.ends(float(owned_nj)))
    return float(rest_nj), (max(rest_nj - (high - owned_nj), 0.0), rest_nj + (owned_nj - low))
