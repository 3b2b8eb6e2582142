# SPDX-License-Identifier: Apache-2.0
"""Queries in the order in which transactions are followed, cut where one may begin or end.

Most queries of a transaction change nothing but its length. Only the others are looked at one by
one, which takes ten times as long.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

import numpy as np

from qjoule.contract import Command, QueryFlag
from qjoule.trace.columns import Array, distinct

_WORD = re.compile(r"(?:xa )?(begin|start|commit|rollback)\b(?! (?:work )?to\b)", re.IGNORECASE)
_STATEMENTS = (Command.QUERY, Command.EXECUTE)
_IN, _NO = int(QueryFlag.IN_TRANSACTION), int(QueryFlag.NO_TRANSACTION)
_ERROR = int(QueryFlag.ERROR)

#: Fingerprint and text of a statement, by its shape's hash.
Named = Callable[[int], tuple[str, str]]


class TransactionRows:
    """Queries by session and begin.

    `session`, `begin_ns`, `end_ns`, `query`, `server`, `flags`: (n,) arrays. `statement`: (n,),
    whether it is one. A statement has a `name` and a `text`; `word` is what it says of its
    transaction (begin, start, commit, rollback), empty if it says nothing or failed.
    """

    def __init__(self, queries: Array, named: Named) -> None:
        order = np.lexsort((queries["begin_ns"], queries["session"]))
        self.order = order
        self.query, self.session = queries["query"][order], queries["session"][order]
        self.server, self.flags = queries["server"][order], queries["flags"][order].astype(np.int64)
        self.begin_ns, self.end_ns = queries["begin_ns"][order], queries["end_ns"][order]
        self.statement = np.isin(queries["command"][order], _STATEMENTS)
        self._codes, shapes = distinct(queries["shape"][order])
        self._named = [named(shape) for shape in shapes.tolist()]
        words = [_word(text) for _, text in self._named]
        told = np.array([bool(word) for word in words], bool)[self._codes]
        self._says = told & self.statement & (self.flags & _ERROR == 0)
        self._words = words
        self._inside: list[int] = np.flatnonzero(self.flags & _IN).tolist()
        self._statements = np.flatnonzero(self.statement)
        self._counted = np.concatenate([[0], np.cumsum(self.statement)])
        self._changes: list[int] = self._new_names().tolist()

    def name(self, at: int) -> str:
        return self._named[int(self._codes[at])][0]

    def text(self, at: int) -> str:
        return self._named[int(self._codes[at])][1]

    def word(self, at: int) -> str:
        return self._words[int(self._codes[at])] if self._says[at] else ""

    def cuts(self) -> Iterator[tuple[int, int, bool]]:
        """(begin, end, decides) of runs of one session.

        If `decides`, the first row may begin or end a transaction. Others may only begin one, by
        their flags.
        """
        decides = self._says | (self.flags & _NO != 0)
        cut = decides.copy()
        cut[:1] = True
        cut[1:] |= self.session[1:] != self.session[:-1]
        begins = np.flatnonzero(cut)
        ends = np.append(begins[1:], self.session.size)
        yield from zip(begins.tolist(), ends.tolist(), decides[begins].tolist(), strict=True)

    def first_inside(self, begin: int, end: int) -> int | None:
        """The first row whose reply says that its session is in a transaction."""
        place = bisect_left(self._inside, begin)
        if place == len(self._inside) or self._inside[place] >= end:
            return None
        return self._inside[place]

    def count(self, begin: int, end: int) -> int:
        """How many of these rows are statements."""
        return int(self._counted[end] - self._counted[begin])

    def names_from(self, begin: int, end: int, last: str) -> Iterator[int]:
        """The statements of these rows, without those of the same name as the one before.

        `last`: the name before the first row.
        """
        first, beyond = int(self._counted[begin]), int(self._counted[end])
        if first == beyond:
            return
        at = int(self._statements[first])
        if self.name(at) != last:
            yield at
        low = bisect_left(self._changes, first + 1)
        for number in self._changes[low : bisect_left(self._changes, beyond, low)]:
            yield int(self._statements[number])

    def _new_names(self) -> Array:
        """Which statements, by their number, have another name than the one before."""
        numbers: dict[str, int] = {}
        by_shape = [numbers.setdefault(name, len(numbers)) for name, _ in self._named]
        names = np.array(by_shape, np.int64)[self._codes[self._statements]]
        return np.flatnonzero(names[1:] != names[:-1]) + 1


def _word(text: str) -> str:
    found = _WORD.match(text)
    return found[1].lower() if found else ""
