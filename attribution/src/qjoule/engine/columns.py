# SPDX-License-Identifier: Apache-2.0
"""Decodes the table `queries`: each column becomes small numbers, codes into its distinct values.

`Transactions` groups queries by transaction and finds the COMMIT's part of it. A transaction
is a call of its sequence of statements: it lasts from the begin of its first query to the end of
the query that ended it. While rows are made, COMMIT is a group of its own (the key `COMMIT`);
`qjoule.model.row_sums` merges it back and records its part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.engine.keys import TAG, TRANSACTION
from qjoule.lazy_import import pc
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import NO_TEXT, NONE_LABEL
from qjoule.model.row_sums import COMMIT
from qjoule.trace.columns import is_valid, text_scalar, view
from qjoule.trace.vocabulary import WAITS

U64 = npt.NDArray[np.uint64]
NO_TRANSACTION_ROW = "(not told)"  #: a transaction without a row of its own
UNFINISHED = "unfinished"  #: status of a record

#: A value of a column; an int is the shape's hash, if the fingerprint never arrived.
Value = str | int | None
#: Combinations of codes are looked up in a table up to this size; beyond that they are sorted.
_TABLE_SIZE = 1 << 20


class Ended(NamedTuple):
    """How n queries relate to their transactions; (n,) each.

    `commit_ns`: duration of COMMIT; -1 for a query that is not the COMMIT or ROLLBACK of one.
    """

    inside: Bool  #: the query belongs to a transaction
    ended: Bool  #: the query ended its transaction
    begin_ns: I64  #: begin of the transaction
    commit_ns: I64


@dataclass(frozen=True)
class Transactions:
    """A trace's transactions; arrays are (n,), in order of `ids`."""

    ids: U64
    texts: Sequence[str]  #: distinct texts
    text: I64  #: code in `texts`
    last: U64  #: the query that ended the transaction; 0: none
    begin_ns: I64
    commit_ns: I64  #: -1: no COMMIT or ROLLBACK ended it

    @staticmethod
    def of(table: pa.Table) -> Transactions:
        """Reads the trace's table `transactions`."""
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
        """Returns codes of each query's transaction (0: none), and the texts that they index."""
        at = self._find(transaction)
        text = np.append(self.text, len(self.texts))[at]
        codes = np.where(transaction == 0, len(self.texts) + 1, text)
        return codes, [*self.texts, NO_TRANSACTION_ROW, NONE_LABEL]

    def ended_by(self, transaction: U64, query: U64) -> Ended:
        """Returns how each query relates to its transaction (0: none)."""
        at, inside = self._find(transaction), transaction != 0
        ended = inside & (np.append(self.last, 0)[at] == query)
        commit_ns = np.where(ended, np.append(self.commit_ns, -1)[at], -1)
        return Ended(inside, ended, np.append(self.begin_ns, 0)[at], commit_ns)

    def _find(self, transaction: U64) -> I64:
        """Returns the index of each in `ids`; the length of `ids` if it is missing."""
        at = np.searchsorted(self.ids, transaction)
        there = np.append(self.ids, np.uint64(0))[at] == transaction
        return np.where(there, at, len(self.ids))


@dataclass(frozen=True)
class Coded:
    """A column as codes into `values`; some values may not occur. `only`: the code that all rows
    have, if there is one and it is known."""

    codes: I64
    values: Sequence[Value]
    only: int | None = None

    def among(self, wanted: Sequence[str]) -> Bool:
        if self.only is not None:
            return np.full(len(self.codes), self.values[self.only] in wanted)
        return np.array([value in wanted for value in self.values])[self.codes]


def coded(column: pa.ChunkedArray, missing: str) -> Coded:
    """Encodes a column's values as strings; null becomes `missing`."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    words = [missing if value is None else str(value) for value in column.dictionary.to_pylist()]
    only = None
    if len(column) and column.null_count == len(column):
        only = len(words)
    elif len(column) and not column.null_count and len(words) == 1:
        only = 0
    if only is not None:
        codes = np.broadcast_to(np.int64(only), len(column))
        return Coded(codes, [*words, missing], only)
    codes = view(column.indices, len(words)).astype(np.int64)
    return Coded(codes, [*words, missing])


def joined(joint: I64, size: int, column: Coded) -> tuple[I64, int]:
    """Returns codes of pairs, and their upper bound. They sort by `joint`, then by `column`."""
    if column.only is not None:
        return joint, size
    width = len(column.values)
    if size * width >= 1 << 62:
        rows, joint = distinct(joint, size)
        size = len(rows)
    return joint * width + column.codes, size * width


def distinct(codes: I64, size: int) -> tuple[I64, I64]:
    """Returns (a row of each distinct code, each row's index among the distinct codes)."""
    if size > max(_TABLE_SIZE, len(codes)):
        rows, place = np.unique(codes, return_index=True, return_inverse=True)[1:]
        return rows, place.reshape(-1)
    row_of = np.full(size, -1, np.int64)
    row_of[codes] = np.arange(len(codes))
    used = np.flatnonzero(row_of >= 0)
    table = np.zeros(size, np.int64)
    table[used] = np.arange(len(used))
    return row_of[used], table[codes]


def texts_of(shapes: pa.Table) -> dict[str, str]:
    """Returns the texts of statements by fingerprint, from the table `shapes`."""
    texts: dict[str, str] = {}
    names, words = (shapes.column(name).to_pylist() for name in ("fingerprint", "text"))
    for name, text in zip(names, words, strict=True):
        texts.setdefault(name, text)
    return texts


class QueryRecords:
    """n records of the table `queries`; columns are decoded on first use; (n,) each.

    `texts`: of statements, by fingerprint. `transactions`: None: no key groups by them.
    """

    def __init__(
        self,
        table: pa.Table,
        texts: Mapping[str, str] = MappingProxyType({}),
        transactions: Transactions | None = None,
    ) -> None:
        self._table, self._texts, self.transactions = table, texts, transactions

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @cached_property
    def ids(self) -> U64:
        return view(self._table.column("query"))

    def by_id(self) -> tuple[U64, I64 | slice]:
        """Returns the distinct ids, sorted, and the first row of each."""
        ids = self.ids
        if len(ids) < 2 or bool((ids[1:] > ids[:-1]).all()):
            return ids, slice(None)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        once = np.append(True, ids[1:] != ids[:-1])
        return ids[once], order[once]

    @cached_property
    def command(self) -> Coded:
        return coded(self._table.column("command"), "query")

    @cached_property
    def flags(self) -> I64:
        return view(self._table.column("flags"), 0)

    @property
    def times_ns(self) -> tuple[I64, I64]:
        """Begins and ends."""
        return view(self._table.column("begin_ns")), view(self._table.column("end_ns"))

    def waits_ns(self) -> I64:
        """The latency of each record and the parts spent waiting: columns as in `CallStats`."""
        begin_ns, end_ns = self.times_ns
        waits = [view(self._table.column(name), 0).astype(np.int64) for name in WAITS]
        return np.stack([end_ns - begin_ns, *waits], axis=1)

    @property
    def executions(self) -> I64:
        return view(self._table.column("executions"), 1).astype(np.int64)

    @property
    def unfinished(self) -> Bool:
        return coded(self._table.column("status"), "").among((UNFINISHED,))

    @cached_property
    def ended(self) -> Ended:
        """See `Transactions.ended_by`; needs transactions."""
        assert self.transactions is not None
        return self.transactions.ended_by(self._transaction, self.ids)

    def key(self, field: str) -> Coded:
        """Returns the values of a key by which records are grouped or selected."""
        if field == "fingerprint":
            return self._fingerprints()
        if field.startswith(TAG):
            tag = text_scalar(field.removeprefix(TAG))
            return coded(pc.map_lookup(self._table.column("tags"), tag, "first"), NONE_LABEL)
        if field == "child":
            return self._children()
        if field == TRANSACTION and self.transactions is not None:
            return Coded(*self.transactions.names(self._transaction))
        if field == COMMIT and self.transactions is not None:
            return Coded((self.ended.commit_ns >= 0).astype(np.int64), ["", COMMIT])
        name = {"thread": "pid"}.get(field, field)
        column = self._table.column(name)
        return coded(column, "" if field in ("attach_mode", "server") else NONE_LABEL)

    @property
    def _transaction(self) -> U64:
        return view(self._table.column(TRANSACTION), 0).astype(np.uint64)

    def _fingerprints(self) -> Coded:
        """Fingerprints; if a text never arrived, the shape's hash, or None."""
        column = self._table.column("fingerprint")
        names = coded(column, "")
        if not column.null_count:
            return Coded(names.codes, [*names.values, None], names.only)
        named = is_valid(column)
        shape = view(self._table.column("shape"), 0)
        lacking = ~named & (shape != 0)
        hashes, place = np.unique(shape[lacking], return_inverse=True)
        codes = np.where(named, names.codes, len(names.values))
        codes[lacking] = len(names.values) + 1 + place.reshape(-1)
        return Coded(codes, [*names.values, None, *hashes.tolist()])

    def _children(self) -> Coded:
        """The child of its query that each record executed; `NONE_LABEL` for the rest."""
        column = coded(self._table.column("child"), NO_TEXT)
        child = self.command.among(("child",))
        texts = [self._texts.get(str(value), value) for value in column.values]
        return Coded(np.where(child, column.codes, len(texts)), [*texts, NONE_LABEL])
