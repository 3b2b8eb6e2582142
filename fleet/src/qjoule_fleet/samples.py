# SPDX-License-Identifier: Apache-2.0
"""Estimates from a store's sampled queries: by user, client and other keys that the sums lack.

A sampled query represents `1 / probability` queries: the sum of the weighted values is an unbiased
estimate of the total (Horvitz and Thompson, A Generalization of Sampling Without Replacement From a
Finite Universe, JASA 47, 1952). Draws are independent of each other, so an unbiased estimate of its
variance is the sum of `(1 - p) (y / p)^2` (Särndal, Swensson and Wretman, Model Assisted Survey
Sampling, 1992, 3.5).

That variance is uncertain itself if a few values dominate it. So the interval uses a quantile of
Student's t, whose degrees of freedom are the effective number of equal terms (after Satterthwaite,
Biometrics Bulletin 2, 1946).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.stats import t as student

from qjoule.api.command import pc, pq
from qjoule.api.model import F64, I64, Bool
from qjoule.api.rollups import (
    HOUR_S,
    SAMPLE_ROWS,
    SAMPLES,
    VERSION_KEY,
    WAITS,
    Part,
    as_written_now,
    decoded,
    unreadable,
)
from qjoule_fleet.files import File, Files, Refused
from qjoule_fleet.footers import part_of_path
from qjoule_fleet.times import Range

#: Below this number of chance draws an interval is a rough guess: its coverage is not its level.
FEW = 25


@dataclass(frozen=True)
class Estimates:
    """Estimates for g groups; all arrays are (g,)."""

    total: F64
    half_width: F64  #: of the 95 % interval, from sampling only
    drawn: I64  #: number of sampled queries
    by_chance: I64  #: number of sampled queries with a probability below 1

    @property
    def rough(self) -> Bool:
        """True where there are too few draws for an interval."""
        rough: Bool = (self.by_chance > 0) & (self.by_chance < FEW)
        return rough


def estimate(values: F64, probability: F64, group: I64, groups: int) -> Estimates:
    """Estimates the total of `values` in each group over all queries.

    Args:
        values: (n,) of the sampled queries.
        probability: (n,) of being sampled, above 0 and at most 1.
        group: (n,) each query's group, from 0.
        groups: number of groups.
    """
    weighted = values / probability
    terms = (1.0 - probability) * weighted**2
    variance = np.bincount(group, terms, groups)
    squares = np.bincount(group, terms**2, groups)
    freedom = np.ones(groups)
    np.divide(variance**2, squares, out=freedom, where=squares > 0)
    quantile = student.ppf(0.975, np.maximum(freedom, 1.0))
    return Estimates(
        np.bincount(group, weighted, groups).astype(np.float64),
        quantile * np.sqrt(variance),
        np.bincount(group, minlength=groups),
        np.bincount(group[probability < 1.0], minlength=groups),
    )


#: Keys for grouping sampled queries: a column of `SAMPLE_ROWS` each.
KEYS = {
    "user": "user",
    "database": "database",
    "application": "application",
    "client": "client",
    "server": "server",
    "shape": "fingerprint",
    "outcome": "outcome",
}
CLASS = ("grade", "policy")  #: joules are added up only if these are equal
NOT_KNOWN = "(unknown)"
#: Bound on the rows of a file; `Store` writes fewer.
MOST_ROWS = 1_000_000
#: The kernel side counts in 1 / 2^32. A smaller number would make a total infinite.
_LEAST = 2.0**-32
_TYPE = SAMPLE_ROWS.field("time").type


def drawn_in(files: Files, within: Range, refused: list[Refused]) -> pa.Table:
    """Returns the sampled queries that ended in a range, `SAMPLE_ROWS`. Adds files that cannot be
    read to `refused`."""
    tables = [SAMPLE_ROWS.empty_table()]
    for file, part in _files(files, within, refused):
        part_rows = _read(files, file, part)
        if isinstance(part_rows, Refused):
            refused.append(part_rows)
        else:
            tables.append(part_rows)
    rows = pa.concat_tables(tables)
    first, end = (pa.scalar(at * 1_000_000).cast(_TYPE) for at in (within.begin_s, within.end_s))
    time = rows["time"]
    return rows.filter(pc.and_(pc.greater_equal(time, first), pc.less(time, end)))


def by_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Returns a row for each combination of values, those with most energy first.

    Joules of different grades or idle policies are never added up: they have separate rows.
    Amounts are estimates for all queries, with 95 % intervals. `drawn`: number of sampled queries.
    `rough`: there are too few for more than a guess of the interval. `wait_…_s` and
    `waits_latency_s`: of queries with recorded waits; null without any.
    """
    every = (*keys, *CLASS)
    names = [KEYS.get(key, key) for key in every]
    columns = {name: pc.fill_null(rows[name], NOT_KNOWN) for name in names}
    groups = pa.table(columns | {"at": pa.array(np.arange(rows.num_rows))})
    grouped = groups.group_by(names, use_threads=False).aggregate([("at", "list")])
    group = np.zeros(rows.num_rows, np.int64)
    for number, members in enumerate(grouped["at_list"].to_pylist()):
        group[members] = number
    probability = rows["probability"].to_numpy()

    def total(name: str) -> Estimates:
        values = pc.fill_null(rows[name].cast(pa.float64()), 0.0).to_numpy()
        return estimate(values, probability, group, grouped.num_rows)

    # A query has all of its waits recorded, or none.
    waits_recorded = pc.is_valid(rows[WAITS[1]])
    rows = rows.append_column(WAITS[0], pc.if_else(waits_recorded, rows["latency_ns"], None))
    some = np.bincount(group, waits_recorded.to_numpy(), grouped.num_rows) > 0
    calls, energy, cpu = total("calls"), total("energy_nj"), total("cpu_ns")
    # The error of a statement is the same for all its queries, so these errors are added up.
    half_nj = np.hypot(energy.half_width, total("error_nj").total)
    table = pa.table(
        {key: grouped[name] for key, name in zip(every, names, strict=True)}
        | {
            **{"drawn": pa.array(calls.drawn), "calls": _rounded(calls.total)},
            "calls_low": _rounded(np.maximum(calls.total - calls.half_width, calls.drawn)),
            "calls_high": _rounded(calls.total + calls.half_width),
            "joules": pa.array(energy.total / 1e9),
            "joules_low": pa.array(np.maximum(energy.total - half_nj, 0.0) / 1e9),
            "joules_high": pa.array((energy.total + half_nj) / 1e9),
            "cpu_s": pa.array(cpu.total / 1e9),
            **{
                f"{name.removesuffix('_ns')}_s": pa.array(total(name).total / 1e9, mask=~some)
                for name in WAITS
            },
            "rough": pa.array(energy.rough),
        }
    )
    return table.sort_by([("joules", "descending"), *((key, "ascending") for key in every)])


def _rounded(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pa.Array:
    return pa.array(np.rint(values).astype(np.int64))


def _files(files: Files, within: Range, refused: list[Refused]) -> Iterator[tuple[File, Part]]:
    for directory in files.directories(SAMPLES):
        for file in files.walk(f"{SAMPLES}/{directory}", refused):
            part = part_of_path(file)
            if isinstance(part, Refused):
                refused.append(part)
            # A minute that was moved is in a later hour.
            elif within.begin_s - 24 * HOUR_S < (part.hour_s or 0) < within.end_s + 24 * HOUR_S:
                yield file, part


def _read(files: Files, file: File, part: Part) -> pa.Table | Refused:
    try:
        with files.open(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            metadata = decoded(parquet.metadata.metadata)
            reason = unreadable(metadata.get(VERSION_KEY)) or part.contradicts(metadata)
            if not reason and parquet.metadata.num_rows > MOST_ROWS:
                reason = f"it has {parquet.metadata.num_rows:,} rows, more than an hour can have"
            if reason:
                return Refused(file.path, reason, part.host)
            rows = as_written_now(parquet.read(), SAMPLE_ROWS)
    except (OSError, pa.ArrowException, ValueError) as error:
        message = (str(error) or type(error).__name__).splitlines()[0][:160]
        return Refused(file.path, f"it cannot be read: {message}", part.host)
    probability = rows["probability"]
    sound = pc.all(pc.and_(pc.greater_equal(probability, _LEAST), pc.less_equal(probability, 1.0)))
    if rows.num_rows and (probability.null_count or not sound.as_py()):
        return Refused(file.path, "a probability is not from 1 / 2^32 to 1", part.host)
    return rows
