# SPDX-License-Identifier: Apache-2.0
"""The rows of `qjoule fleet top`, and totals that add up to the measured energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np

from qjoule.api.model import NOT_EQUALLY, Waits, from_histograms
from qjoule.api.rollups import HELPERS, HOUR_S, WAITS
from qjoule_fleet.catalog import Catalog
from qjoule_fleet.files import Refused
from qjoule_fleet.questions import LATENCY_BUCKETS, MIXED, By
from qjoule_fleet.reader import Answer, Parts, Question, Reader, select
from qjoule_fleet.times import Range

QUERIES, NODE = "queries", "node"
#: Kinds of other energy, in the order of display.
KINDS = ("background", "other_processes", "kernel", "tracer", "idle", "residual")
#: Agents round errors up by at most this factor, for minutes and again for hours (`fleet.sums`).
_ROUNDED = 1.02
SEVERAL_TEXTS = "hosts or versions of qjoule wrote several texts of this shape: the newest is shown"


@dataclass(frozen=True)
class Row:
    """A group of one grade and idle policy. Unknown values are None.

    `energy_nj_ci95`: includes the error of hosts' totals; in `Top` only if `Total.error_in_rows`.
    `share`: of the energy measured in its class. `texts`: number of different texts of its shape.
    """

    keys: dict[str, str]
    grade: str
    policy: str
    energy_nj: int
    energy_nj_ci95: tuple[float, float] | None
    share: float | None
    calls: int
    cpu_ns: int
    latency_ns_mean: float | None
    latency_ns_p50: float | None
    latency_ns_p95: float | None
    hosts: int
    shapes: int
    text: str = ""
    ids: str = ""
    texts: int = 0
    same_total_nj_ci95: tuple[float, float] | None = None  #: without the error of hosts' totals
    waits: Waits | None = None  #: None if not recorded for any of its queries
    helpers: Waits | None = None  #: as in `qjoule.api.model.Row`
    in_doubt_nj: float = 0.0  #: may be wrong because of lost records or records without an owner

    @property
    def j_per_call(self) -> float | None:
        return self.energy_nj / 1e9 / self.calls if self.calls else None

    @property
    def j_per_call_ci95(self) -> tuple[float, float] | None:
        if self.energy_nj_ci95 is None or not self.calls:
            return None
        low, high = self.energy_nj_ci95
        return low / 1e9 / self.calls, high / 1e9 / self.calls

    @property
    def flags(self) -> tuple[str, ...]:
        return (SEVERAL_TEXTS,) if self.texts > 1 else ()


@dataclass(frozen=True)
class Total:
    """The total of a class. `node_nj` is the measured energy, and the sum of `rows_nj`,
    `others_nj`, `parts_nj` and `unaccounted_nj`, which is 0 unless a part of an hour is wrong.
    `total_error`: the relative 95 % error of `node_nj`, which rows' intervals include only if
    `error_in_rows`."""

    grade: str
    policy: str
    hosts: int
    node_nj: int
    rows_nj: int
    others_nj: int  #: of queries that are in no row
    parts_nj: dict[str, int]
    calls: int
    cpu_ns: int
    lost_records: int
    lost_cpu_ns: int
    total_error: float = 0.0
    error_in_rows: bool = False

    @property
    def unaccounted_nj(self) -> int:
        return self.node_nj - self.rows_nj - self.others_nj - sum(self.parts_nj.values())


@dataclass(frozen=True)
class Read:
    """Statistics of the parts that were read, and those that were left out."""

    parts: int
    bytes: int
    hosts: int
    refused: tuple[Refused, ...]
    missing: tuple[tuple[str, int], ...]  #: hosts' hours (Unix time) without a part
    silent: tuple[str, ...]  #: hosts without any part in the range


@dataclass(frozen=True)
class Top:
    range: Range
    by: By
    sort: str
    rows: list[Row]
    count: int  #: number of all rows
    totals: list[Total]
    read: Read
    notes: list[str] = field(default_factory=list)

    @property
    def hidden(self) -> int:
        return self.count - len(self.rows)


def top(
    reader: Reader,
    time_range: Range,
    question: Question,
    selected: Callable[[Parts], object] = lambda _: None,
) -> Top:
    """Answers a question; calls `selected` with the parts before they are read.

    `Top.totals` is empty if there are no rows in the range.
    """
    by = question.by
    parts = select(Catalog(reader.files), time_range, by)
    selected(parts)
    answer = reader.answer(parts, question)
    totals = _totals(answer, mixed=by.mix_grades, absolute=question.absolute)
    rows = rows_of(answer, by, {(total.grade, total.policy): total.node_nj for total in totals})
    shares = {(total.grade, total.policy) for total in totals if not total.error_in_rows}
    rows = [
        replace(row, energy_nj_ci95=row.same_total_nj_ci95)
        if (row.grade, row.policy) in shares
        else row
        for row in rows
    ]
    totals = [_with_rows(total, rows) for total in totals]
    notes = _notes(parts)
    if not question.absolute:
        notes += [NOT_EQUALLY.format(total.grade) for total in totals if total.error_in_rows]
    span, count = parts.sums.range, answer.count
    return Top(span, by, question.sort, rows, count, totals, read(parts), notes)


def read(parts: Parts) -> Read:
    both = [parts.sums, *([parts.tags] if parts.tags else [])]
    refused = {part.path: part for selection in both for part in selection.refused}
    return Read(
        sum(len(selection.parts) for selection in both),
        sum(selection.bytes for selection in both),
        len({parts.sums.hosts.key(checked.part) for checked in parts.sums.parts}),
        tuple(sorted(refused.values(), key=lambda part: part.path)),
        tuple(parts.sums.missing),
        tuple(parts.sums.silent),
    )


def rows_of(answer: Answer, by: By, measured: dict[tuple[str, str], int]) -> list[Row]:
    """Returns the sorted rows. `measured`: nJ by class."""
    texts = {shape["fingerprint"]: shape for shape in answer.shapes.to_pylist()}
    groups = answer.groups.to_pylist()
    latency = _latency(answer, by)
    rows = []
    for group in groups:
        columns = iter(by.columns)
        class_ = {"grade": group["grade"], "policy": group["policy"]}
        keys = {key: class_[key] if key in class_ else str(group[next(columns)]) for key in by.keys}
        shape = texts.get(keys.get("fingerprint", ""), {})
        ends = (group["low_nj"], group["high_nj"])
        node_nj = measured.get((group["grade"], group["policy"]), 0)
        energy_nj = int(group["energy_nj"])
        p50, p95 = latency.get(_identity(group, by), (None, None))
        calls = int(group["calls"])
        same = (group["same_total_low_nj"], group["same_total_high_nj"])
        rows.append(
            Row(
                keys,
                group["grade"],
                group["policy"],
                energy_nj,
                None if None in ends else ends,
                energy_nj / node_nj if node_nj else None,
                calls,
                int(group["cpu_ns"]),
                int(group["latency_ns"]) / calls if calls and group["latency_ns"] else None,
                p50,
                p95,
                int(group["hosts"]),
                int(group["shapes"]),
                shape.get("text") or "",
                shape.get("ids") or "",
                int(shape.get("texts") or 0),
                None if None in same else same,
                _waits(group, WAITS),
                _waits(group, HELPERS),
                float(group["in_doubt_nj"]),
            )
        )
    return rows


def _waits(row: dict[str, Any], names: Sequence[str]) -> Waits | None:
    if row[WAITS[0]] and row[names[0]] is not None:
        return Waits(*(int(row[name] or 0) for name in names))
    return None


def _identity(row: dict[str, Any], by: By) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*by.columns, "grade", "policy"))


def _latency(answer: Answer, by: By) -> dict[tuple[Any, ...], tuple[float | None, float | None]]:
    """Returns p50 and p95 in ns, by group."""
    table = answer.latencies
    if "b1" not in table.column_names or not table.num_rows:
        return {}
    buckets = [f"b{i}" for i in range(1, LATENCY_BUCKETS + 1)]
    counts = np.array(
        [[int(count or 0) for count in table[name].to_pylist()] for name in buckets]
    ).T
    calls = counts.sum(axis=1)
    stats = from_histograms(calls, calls.astype(np.float64), counts)
    quantiles = stats.latency_ns_quantiles[:, :2]
    return {
        _identity(row, by): (float(p50), float(p95))
        for row, (p50, p95) in zip(table.to_pylist(), quantiles, strict=True)
        if not np.isnan(p50)
    }


def _totals(answer: Answer, *, mixed: bool, absolute: bool) -> list[Total]:
    """Returns the totals by class; `rows_nj` is still 0, and `others_nj` has all queries."""
    of: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    errors: dict[tuple[str, str], list[float]] = {}
    for row in answer.totals.to_pylist():
        class_ = (MIXED if mixed else row["grade"], row["policy"])
        kinds = of.setdefault(class_, {})
        ends = (row["least_error"], row["most_error"])
        errors.setdefault(class_, []).extend(error for error in ends if error is not None)
        before = kinds.get(row["kind"], {})
        kinds[row["kind"]] = {
            name: value + before.get(name, 0)
            for name, value in row.items()
            if isinstance(value, (int, Decimal))
        }
    totals = []
    for (grade, policy), kinds in sorted(of.items()):
        node, queries = kinds.get(NODE, {}), kinds.get(QUERIES, {})
        others = {kind: sums for kind, sums in kinds.items() if kind not in (NODE, QUERIES)}
        names = sorted(others, key=lambda kind: (*KINDS, kind).index(kind))
        least, most = (f(errors[grade, policy], default=0.0) for f in (min, max))
        differ = most > least * _ROUNDED
        totals.append(
            Total(
                grade,
                policy,
                max((int(sums["hosts"]) for sums in kinds.values()), default=0),
                int(node.get("energy_nj", 0)),
                0,
                int(queries.get("energy_nj", 0)),
                {kind: int(others[kind]["energy_nj"]) for kind in names},
                int(queries.get("calls", 0)),
                sum(int(sums["cpu_ns"]) for sums in kinds.values()),
                int(node.get("lost_records", 0)),
                int(node.get("lost_cpu_ns", 0)),
                most if differ else least,
                absolute or differ,
            )
        )
    return totals


def _with_rows(total: Total, rows: Sequence[Row]) -> Total:
    own = sum(
        row.energy_nj for row in rows if (row.grade, row.policy) == (total.grade, total.policy)
    )
    return replace(total, rows_nj=own, others_nj=total.others_nj - own)


def _notes(parts: Parts) -> list[str]:
    notes = list(parts.sums.notes)
    tags_range = parts.tags and parts.tags.range
    if tags_range and (tags_range.begin_s % HOUR_S or tags_range.end_s % HOUR_S):
        notes.append("tags are kept by hour: queries of the hours at the edges are in no row")
    return notes
