# SPDX-License-Identifier: Apache-2.0
"""Assigns queries to transactions, as far as the server's replies show them.

A transaction begins with the query whose reply reports that the session is now in one. It ends with
the query whose reply reports that it no longer is. A statement that commits itself is no
transaction, since its reply never reports one. Replies with rows report nothing and leave the
session's state unchanged.

A session that was open before tracing may be in a transaction. If the first reply that reports its
state says so, and the query is no BEGIN, or if that query is COMMIT or ROLLBACK, then the
transaction's row says that it began before, and has what came from there on. Without autocommit it
may also have begun with that very query; the replies do not tell.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from qjoule.contract import AttachMode, Command, QueryFlag, SessionEvent
from qjoule.stream.pending import chosen
from qjoule.trace.columns import Array, distinct
from qjoule.trace.schema import TRANSACTIONS

_WORD = re.compile(r"(?:xa )?(begin|start|commit|rollback)\b(?! (?:work )?to\b)", re.IGNORECASE)
_STATEMENTS = (Command.QUERY, Command.EXECUTE)
_IN, _NO = int(QueryFlag.IN_TRANSACTION), int(QueryFlag.NO_TRANSACTION)
_ERROR = int(QueryFlag.ERROR)

#: Fingerprint and text of a statement, by its shape's hash.
Named = Callable[[int], tuple[str, str]]
#: Open transactions remembered. Beyond this number the oldest counts as unfinished.
MAX_OPEN = 100_000
#: Different sequences of statements that get a name; the others are called `OTHER`.
MAX_KINDS = 10_000
#: Statements of a sequence that are compared, and that are shown.
MAX_STATEMENTS, MAX_SHOWN = 1_000, 12
#: Characters shown of each statement in a sequence.
STATEMENT_CHARACTERS = 60
OTHER = "(transactions of other kinds)"
#: First statement of a transaction whose begin was not seen.
BEFORE = "(began before tracing)"
#: Sessions that were open before and have not reported their state yet.
MAX_OLDER = 100_000
_REPORTS = _IN | _NO


class TransactionRows:
    """Queries by session and begin.

    `session`, `begin_ns`, `end_ns`, `query`, `server`, `flags`: (n,) arrays. `statement`: (n,),
    whether it is one. A statement has a `name` and a `text`; `word` is what it says of its
    transaction (begin, start, commit, rollback), empty if it says nothing or failed.
    """

    def __init__(self, queries: Array, named: Named) -> None:
        self.order = order = np.lexsort((queries["begin_ns"], queries["session"]))
        self.query, self.session = queries["query"][order], queries["session"][order]
        self.server, self.flags = queries["server"][order], queries["flags"][order].astype(np.int64)
        self.begin_ns, self.end_ns = queries["begin_ns"][order], queries["end_ns"][order]
        self.statement = np.isin(queries["command"][order], _STATEMENTS)
        self._codes, shapes = distinct(queries["shape"][order])
        self._named = [named(shape) for shape in shapes.tolist()]
        found = [_WORD.match(text) for _, text in self._named]
        self._words = [word[1].lower() if word else "" for word in found]
        told = np.array([bool(word) for word in self._words], bool)[self._codes]
        self._says = told & self.statement & (self.flags & _ERROR == 0)
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


@dataclass(slots=True)
class _Open:
    transaction: int
    session: int
    server: int
    begin_ns: int
    end_ns: int = 0
    statements: int = 0
    #: fingerprints; equal ones in a row count once
    sequence: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class Transactions:
    """Follows the sessions of a stream. Queries must come in order of time."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._open: dict[int, _Open] = {}
        self._met: dict[int, int] = {}  #: by session: its first event, if no query has come yet
        self._older: set[int] = set()  #: sessions that were open before, until their first report
        self._kinds: dict[str, str] = {}
        self._rows: list[dict[str, object]] = []

    def met(self, session: int, event: int, t_ns: int) -> None:
        """A session's event. The login is seen of those that begin during the trace."""
        if event == SessionEvent.OPEN:
            self._met.pop(session, None)
            self._older.discard(session)
        elif event == SessionEvent.MET and len(self._met) < MAX_OLDER:
            self._met.setdefault(session, t_ns)

    def assign(self, queries: Array) -> Array:
        """The transaction id of each query, (n,), 0: none. It is the id of the transaction's first
        query.
        """
        found = np.zeros(queries.size, np.uint64)
        session = queries["session"]
        begun = session[queries["flags"] & QueryFlag.IN_TRANSACTION != 0]
        sessions = np.union1d(begun, np.fromiter(self._open, np.uint64))
        followed = np.isin(session, sessions[sessions != 0])
        self._find_older(queries)
        if self._older:
            reports = np.flatnonzero(queries["flags"] & _REPORTS)
            older = np.fromiter(self._older, np.uint64)
            followed[reports[np.isin(session[reports], older)]] = True
        chosen_rows = np.flatnonzero(followed)
        if chosen_rows.size:
            rows = TransactionRows(chosen(queries, chosen_rows), self._named)
            found[chosen_rows[rows.order]] = self._follow_all(rows)
        return found

    def of_running(self, sessions: Array) -> Array:
        """The id of each session's open transaction, (n,), 0: none."""
        ids = (self._open[s].transaction if s in self._open else 0 for s in sessions.tolist())
        return np.fromiter(ids, np.uint64, sessions.size)

    def finish(self) -> None:
        """The trace ends: open transactions stay unfinished."""
        for one in list(self._open.values()):
            self._close(one, "unfinished")

    def take_rows(self) -> pa.Table:
        """Rows of `transactions` since the last call."""
        rows, self._rows = self._rows, []
        return pa.Table.from_pylist(rows, TRANSACTIONS)

    def _follow_all(self, rows: TransactionRows) -> Array:
        """The transaction id of each row, (n,)."""
        found = np.zeros(rows.session.size, np.uint64)
        for begin, end, decides in rows.cuts():
            at = begin
            if decides:
                found[at] = self._follow(rows, at)
                at += 1
            session = int(rows.session[begin])
            if session not in self._open or session in self._older:
                inside = rows.first_inside(at, end)
                if inside is None and session not in self._open:
                    continue
                if inside is not None:
                    found[at:inside] = self._pass(rows, at, inside)
                    found[inside] = self._follow(rows, inside)
                    at = inside + 1
            found[at:end] = self._pass(rows, at, end)
        return found

    def _pass(self, rows: TransactionRows, begin: int, end: int) -> int:
        """Adds rows of one session that neither begin nor end a transaction to the open one."""
        one = self._open.get(int(rows.session[begin])) if begin < end else None
        if one is None:
            return 0
        one.end_ns = int(rows.end_ns[end - 1])
        one.statements += rows.count(begin, end)
        for at in rows.names_from(begin, end, one.sequence[-1] if one.sequence else ""):
            _add(one, rows.name(at), rows.text(at))
        return one.transaction

    def _follow(self, rows: TransactionRows, at: int) -> int:
        flags, session = int(rows.flags[at]), int(rows.session[at])
        one = self._open.get(session)
        statement, word = bool(rows.statement[at]), rows.word(at)
        done = statement and not flags & _ERROR
        if one is not None and word in ("begin", "start"):
            self._close(one, "committed")
            one = None
        older = bool(flags & _REPORTS) and session in self._older
        if older:
            self._older.discard(session)
        if one is None:
            began = older and word not in ("begin", "start")
            ends = word in ("commit", "rollback")
            if not flags & _IN and not (began and ends):
                return 0
            one = self._begin(rows, at)
            if began:
                one.sequence.append(BEFORE)
                one.texts.append(BEFORE)
        one.end_ns = int(rows.end_ns[at])
        if statement:
            one.statements += 1
            if not one.sequence or one.sequence[-1] != rows.name(at):
                _add(one, rows.name(at), rows.text(at))
        if flags & _NO or word in ("commit", "rollback"):
            self._close(one, "committed" if done and word != "rollback" else "rolled back")
            last = {"last": int(rows.query[at])}
            if word:
                last["commit_ns"] = int(rows.end_ns[at]) - int(rows.begin_ns[at])
            self._rows[-1] |= last
        return one.transaction

    def _find_older(self, queries: Array) -> None:
        """Decides by each session's first query whether it was open before.

        On the attach mode `symbol`, logins are events like any other; a session from before has its
        first event in its first query.
        """
        if not self._met:
            return
        rows = np.flatnonzero(np.isin(queries["session"], np.fromiter(self._met, np.uint64)))
        rows = rows[np.argsort(queries["begin_ns"][rows], kind="stable")]
        sessions, first = np.unique(queries["session"][rows], return_index=True)
        for session, query in zip(sessions.tolist(), queries[rows[first]], strict=True):
            met_ns = self._met.pop(session)
            is_older = query["attach_mode"] != AttachMode.SYMBOL or met_ns >= int(query["begin_ns"])
            if is_older and len(self._older) < MAX_OLDER:
                self._older.add(session)

    def _begin(self, rows: TransactionRows, at: int) -> _Open:
        if len(self._open) >= MAX_OPEN:
            self._close(next(iter(self._open.values())), "unfinished")
        columns = (rows.query, rows.session, rows.server, rows.begin_ns)
        query, session, server, begin_ns = (int(column[at]) for column in columns)
        self._open[session] = one = _Open(query, session, server, begin_ns)
        return one

    def _close(self, one: _Open, outcome: str) -> None:
        del self._open[one.session]
        self._rows.append(
            {
                "transaction": one.transaction,
                "begin_ns": one.begin_ns,
                "end_ns": max(one.end_ns, one.begin_ns),
                "session": one.session,
                "server": one.server or None,
                "outcome": outcome,
                "statements": one.statements,
                "text": self._text(one),
                "last": None,
                "commit_ns": None,
            }
        )

    def _text(self, one: _Open) -> str:
        """The sequence as text for people; if it is cut, with a digest of the whole."""
        digest = blake2b("\0".join(one.sequence).encode(), digest_size=8).hexdigest()
        if (known := self._kinds.get(digest)) is not None:
            return known
        if len(self._kinds) >= MAX_KINDS:
            return OTHER
        text = "; ".join(one.texts[:MAX_SHOWN])
        if len(one.sequence) > MAX_SHOWN or "…" in text:
            text += f"; … [{digest}]"
        self._kinds[digest] = text
        return text


def _add(one: _Open, name: str, text: str) -> None:
    """Adds a statement of another name than the one before to the sequence."""
    if len(one.sequence) == MAX_STATEMENTS:
        return
    one.sequence.append(name)
    if len(one.texts) < MAX_SHOWN:
        cut = len(text) > STATEMENT_CHARACTERS
        one.texts.append(text[: STATEMENT_CHARACTERS - 1] + "…" if cut else text)
