# SPDX-License-Identifier: Apache-2.0
"""Groups queries by their transaction, and finds the COMMIT's part of it.

A transaction is a call of its sequence of statements: it lasts from the begin of its first query to
the end of the query that ended it. While rows are made, COMMIT is a group of its own (the key
`COMMIT`); `with_commits` merges it back and records its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.model.energy import I64, Bool
from qjoule.model.interval import of_one_recording
from qjoule.model.labels import NONE_LABEL, GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.result import Attribution, Row
from qjoule.model.row_sums import errors_of
from qjoule.trace.views import view

U64 = npt.NDArray[np.uint64]
COMMIT = "commit"  #: key of a query that was its transaction's COMMIT or ROLLBACK
NOT_TOLD = "(not told)"  #: a transaction without a row of its own


class Ended(NamedTuple):
    """What n queries are of their transactions; (n,) each.

    `commit_ns`: duration of COMMIT; -1 for a query that is not the COMMIT or ROLLBACK of one.
    """

    inside: Bool  #: it belongs to a transaction
    ended: Bool  #: it ended that
    begin_ns: I64  #: of the transaction
    commit_ns: I64


@dataclass(frozen=True)
class Transactions:
    """A trace's transactions; arrays are (n,), in order of `ids`."""

    ids: U64
    texts: Sequence[str]  #: distinct ones
    text: I64  #: code in `texts`
    last: U64  #: the query that ended it; 0 none
    begin_ns: I64
    commit_ns: I64  #: -1: no COMMIT or ROLLBACK ended it

    @staticmethod
    def of(table: pa.Table) -> Transactions:
        """From the trace's table `transactions`."""
        ids, once = np.unique(view(table.column("transaction")), return_index=True)
        names = table.column("text").cast(pa.string()).to_pylist()
        codes: dict[str, int] = {}
        text = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
        last = view(table.column("last"), 0)
        commit_ns = view(table.column("commit_ns"), -1)
        begin_ns = view(table.column("begin_ns"))
        return Transactions(
            ids.astype(np.uint64),
            list(codes),
            text[once],
            last[once].astype(np.uint64),
            begin_ns[once].astype(np.int64),
            commit_ns[once].astype(np.int64),
        )

    def names(self, transaction: U64) -> tuple[I64, list[str]]:
        """Codes of each query's transaction (0: none) into the texts that are returned."""
        at = self._find(transaction)
        known = np.append(self.text, len(self.texts))[at]
        codes = np.where(transaction == 0, len(self.texts) + 1, known)
        return codes, [*self.texts, NOT_TOLD, NONE_LABEL]

    def ended_by(self, transaction: U64, query: U64) -> Ended:
        """What each query is of its transaction (0: none)."""
        at, inside = self._find(transaction), transaction != 0
        ended = inside & (np.append(self.last, 0)[at] == query)
        commit_ns = np.where(ended, np.append(self.commit_ns, -1)[at], -1)
        return Ended(inside, ended, np.append(self.begin_ns, 0)[at], commit_ns)

    def _find(self, transaction: U64) -> I64:
        """The index of each in `ids`; the length of `ids` if it is not there."""
        at = np.searchsorted(self.ids, transaction)
        there = np.append(self.ids, np.uint64(0))[at] == transaction
        return np.where(there, at, len(self.ids))


def with_commits(
    found: Attribution, labels: Sequence[GroupLabel], commits: CallStats
) -> Attribution:
    """The attribution with each transaction in one row, which includes its COMMIT's part.

    `labels` and `commits` (durations of COMMITs) are per group.
    """
    means = zip(labels, commits.latency_ns_mean.tolist(), strict=False)
    took_ns = {label.keys: mean for label, mean in means if label.kind == "queries"}
    parts: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in found.rows:
        keys = tuple((key, value) for key, value in row.keys.items() if key != COMMIT)
        parts.setdefault(keys, []).append(row)
    rows = [_joined(dict(keys), some, took_ns) for keys, some in parts.items()]
    rows.sort(key=lambda row: (-row.energy_nj, -row.cpu_ns, sorted(row.keys.items())))
    return replace(found, rows=tuple(rows))


def _joined(
    keys: dict[str, str], rows: list[Row], took_ns: dict[tuple[tuple[str, str], ...], float]
) -> Row:
    """Merges a transaction's two rows. Their errors are common, so the ends of their intervals
    add up."""
    most = max(rows, key=lambda row: row.calls)
    commit = next((row for row in rows if row.keys[COMMIT]), None)
    flags = dict.fromkeys(flag for row in rows for flag in row.flags)
    short = all("below_resolution" in row.flags for row in rows)
    domains = most.energy_by_domain_nj
    error, error_by_domain = errors_of(rows, most.error_by_domain, of_one_recording)
    return replace(
        most,
        keys=keys,
        shape=most.shape if "fingerprint" in keys else "",
        energy_nj=sum(row.energy_nj for row in rows),
        energy_nj_ci95=_ends([row.energy_nj_ci95 for row in rows]),
        share=sum(row.share for row in rows),
        cpu_ns=sum(row.cpu_ns for row in rows),
        cycles=_sum([row.cycles for row in rows]),
        instructions=_sum([row.instructions for row in rows]),
        llc_misses=_sum([row.llc_misses for row in rows]),
        flags=tuple(flag for flag in flags if short or flag != "below_resolution"),
        energy_by_domain_nj={n: sum(row.energy_by_domain_nj[n] for row in rows) for n in domains},
        energy_by_domain_ci95={
            n: _ends([row.energy_by_domain_ci95[n] for row in rows])
            for n in most.energy_by_domain_ci95
        },
        error=error,
        error_by_domain=error_by_domain,
        power_factor=most.power_factor if len(rows) == 1 else None,
        alone=most.alone if len(rows) == 1 else None,
        shared_nj=_sum([row.shared_nj for row in rows]),
        commit_nj=commit.energy_nj if commit else None,
        commit_ns_mean=took_ns.get(tuple(commit.keys.items())) if commit else None,
    )


def _ends(intervals: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(low for low, _ in intervals), sum(high for _, high in intervals)


def _sum(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
