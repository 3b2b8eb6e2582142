# SPDX-License-Identifier: Apache-2.0
"""Groups queries by their transaction, and finds the COMMIT's part of it.

A transaction is a call of its sequence of statements: it lasts from the begin of its first query to
the end of the query that ended it. While rows are made, COMMIT is a group of its own (the key
`COMMIT`); `qjoule.model.commits` merges it back and records its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.model.energy import I64, Bool
from qjoule.model.labels import NONE_LABEL
from qjoule.trace.columns import view

U64 = npt.NDArray[np.uint64]
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
