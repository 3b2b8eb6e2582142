# SPDX-License-Identifier: Apache-2.0
"""Queries of a batch by session and begin, with what each says of its session's transaction."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

import numpy as np

from qjoule.contract import Command, QueryFlag
from qjoule.trace.columns import Array, distinct

_WORD = re.compile(r"(?:xa )?(begin|start|commit|rollback)\b(?! (?:work )?to\b)", re.IGNORECASE)
_STATEMENTS = (Command.QUERY, Command.EXECUTE)
IN_TRANSACTION, NO_TRANSACTION = int(QueryFlag.IN_TRANSACTION), int(QueryFlag.NO_TRANSACTION)
ERROR = int(QueryFlag.ERROR)

#: Fingerprint and text of a statement, by its shape's hash.
NameOf = Callable[[int], tuple[str, str]]


class TransactionRows:
    """Queries by session and begin.

    `session`, `begin_ns`, `end_ns`, `query`, `server`, `flags`: (n,) arrays. `statement`: (n,),
    whether it is one. A statement has a `name` and a `text`; `word` is what it says of its
    transaction (begin, start, commit, rollback), empty if it says nothing or failed.
    """

    def __init__(self, queries: Array, name_of: NameOf) -> None:
        self.order = order = np.lexsort((queries["begin_ns"], queries["session"]))
        self.query, self.session = queries["query"][order], queries["session"][order]
        self.server, self.flags = queries["server"][order], queries["flags"][order].astype(np.int64)
        self.begin_ns, self.end_ns = queries["begin_ns"][order], queries["end_ns"][order]
        self.statement = np.isin(queries["command"][order], _STATEMENTS)
        self._codes, shapes = distinct(queries["shape"][order])
        self._names = [name_of(shape) for shape in shapes.tolist()]
        matches = [_WORD.match(text) for _, text in self._names]
        self._words = [match[1].lower() if match else "" for match in matches]
        has_word = np.array([bool(word) for word in self._words], bool)[self._codes]
        self._says = has_word & self.statement & (self.flags & ERROR == 0)
        self._inside: list[int] = np.flatnonzero(self.flags & IN_TRANSACTION).tolist()
        self._statements = np.flatnonzero(self.statement)
        self._statements_before = np.concatenate([[0], np.cumsum(self.statement)])
        self._changes: list[int] = self._new_names().tolist()

    def name(self, row: int) -> str:
        return self._names[int(self._codes[row])][0]

    def text(self, row: int) -> str:
        return self._names[int(self._codes[row])][1]

    def word(self, row: int) -> str:
        return self._words[int(self._codes[row])] if self._says[row] else ""

    def cuts(self) -> Iterator[tuple[int, int, bool]]:
        """(begin, end, decides) of runs of one session.

        If `decides`, the first row may begin or end a transaction. Others may only begin one, by
        their flags.
        """
        decides = self._says | (self.flags & NO_TRANSACTION != 0)
        cut = decides.copy()
        cut[:1] = True
        cut[1:] |= self.session[1:] != self.session[:-1]
        begins = np.flatnonzero(cut)
        ends = np.append(begins[1:], self.session.size)
        yield from zip(begins.tolist(), ends.tolist(), decides[begins].tolist(), strict=True)

    def first_inside(self, begin: int, end: int) -> int | None:
        """The first row whose reply reports an open transaction."""
        place = bisect_left(self._inside, begin)
        if place == len(self._inside) or self._inside[place] >= end:
            return None
        return self._inside[place]

    def count(self, begin: int, end: int) -> int:
        """How many of these rows are statements."""
        return int(self._statements_before[end] - self._statements_before[begin])

    def names_from(self, begin: int, end: int, last: str) -> Iterator[int]:
        """The statements of these rows, without those of the same name as the one before.

        `last`: the name before the first row.
        """
        first, beyond = int(self._statements_before[begin]), int(self._statements_before[end])
        if first == beyond:
            return
        row = int(self._statements[first])
        if self.name(row) != last:
            yield row
        low = bisect_left(self._changes, first + 1)
        for number in self._changes[low : bisect_left(self._changes, beyond, low)]:
            yield int(self._statements[number])

    def _new_names(self) -> Array:
        """Which statements, by their number, have another name than the one before."""
        numbers: dict[str, int] = {}
        by_shape = [numbers.setdefault(name, len(numbers)) for name, _ in self._names]
        names = np.array(by_shape, np.int64)[self._codes[self._statements]]
        return np.flatnonzero(names[1:] != names[:-1]) + 1
