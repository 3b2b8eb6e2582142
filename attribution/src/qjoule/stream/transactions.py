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

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from qjoule.contract import AttachMode, QueryFlag, SessionEvent
from qjoule.stream.pending import take_rows
from qjoule.stream.transaction_rows import (
    ERROR,
    IN_TRANSACTION,
    NO_TRANSACTION,
    NameOf,
    TransactionRows,
)
from qjoule.trace.columns import Array
from qjoule.trace.schema import TRANSACTIONS

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
_REPORTS = IN_TRANSACTION | NO_TRANSACTION


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

    def __init__(self, name_of: NameOf) -> None:
        self._name_of = name_of
        self._open: dict[int, _Open] = {}
        self._met: dict[int, int] = {}  #: by session: its first event, if no query has come yet
        self._older: set[int] = set()  #: sessions that were open before, until their first report
        self._kinds: dict[str, str] = {}
        self._rows: list[dict[str, object]] = []

    def met(self, session: int, event: int, t_ns: int) -> None:
        """Takes in a session's event. Only sessions that begin during the trace have a login."""
        if event == SessionEvent.OPEN:
            self._met.pop(session, None)
            self._older.discard(session)
        elif event == SessionEvent.MET and len(self._met) < MAX_OLDER:
            self._met.setdefault(session, t_ns)

    def assign(self, queries: Array) -> Array:
        """The transaction id of each query, (n,), 0: none. It is the id of the transaction's first
        query.
        """
        ids = np.zeros(queries.size, np.uint64)
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
            rows = TransactionRows(take_rows(queries, chosen_rows), self._name_of)
            ids[chosen_rows[rows.order]] = self._follow_all(rows)
        return ids

    def of_running(self, sessions: Array) -> Array:
        """The id of each session's open transaction, (n,), 0: none."""
        ids = (self._open[s].transaction if s in self._open else 0 for s in sessions.tolist())
        return np.fromiter(ids, np.uint64, sessions.size)

    def finish(self) -> None:
        """The trace ends: open transactions stay unfinished."""
        for transaction in list(self._open.values()):
            self._close(transaction, "unfinished")

    def take_rows(self) -> pa.Table:
        """Rows of `transactions` since the last call."""
        rows, self._rows = self._rows, []
        return pa.Table.from_pylist(rows, TRANSACTIONS)

    def _follow_all(self, rows: TransactionRows) -> Array:
        """The transaction id of each row, (n,)."""
        ids = np.zeros(rows.session.size, np.uint64)
        for begin, end, decides in rows.cuts():
            row = begin
            if decides:
                ids[row] = self._follow(rows, row)
                row += 1
            session = int(rows.session[begin])
            if session not in self._open or session in self._older:
                inside = rows.first_inside(row, end)
                if inside is None and session not in self._open:
                    continue
                if inside is not None:
                    ids[row:inside] = self._add_statements(rows, row, inside)
                    ids[inside] = self._follow(rows, inside)
                    row = inside + 1
            ids[row:end] = self._add_statements(rows, row, end)
        return ids

    def _add_statements(self, rows: TransactionRows, begin: int, end: int) -> int:
        """Adds rows of one session that neither begin nor end a transaction to the open one."""
        transaction = self._open.get(int(rows.session[begin])) if begin < end else None
        if transaction is None:
            return 0
        transaction.end_ns = int(rows.end_ns[end - 1])
        transaction.statements += rows.count(begin, end)
        for row in rows.names_from(
            begin, end, transaction.sequence[-1] if transaction.sequence else ""
        ):
            _add(transaction, rows.name(row), rows.text(row))
        return transaction.transaction

    def _follow(self, rows: TransactionRows, row: int) -> int:
        flags, session = int(rows.flags[row]), int(rows.session[row])
        transaction = self._open.get(session)
        statement, word = bool(rows.statement[row]), rows.word(row)
        done = statement and not flags & ERROR
        if transaction is not None and word in ("begin", "start"):
            self._close(transaction, "committed")
            transaction = None
        older = bool(flags & _REPORTS) and session in self._older
        if older:
            self._older.discard(session)
        if transaction is None:
            began = older and word not in ("begin", "start")
            ends = word in ("commit", "rollback")
            if not flags & IN_TRANSACTION and not (began and ends):
                return 0
            transaction = self._begin(rows, row)
            if began:
                transaction.sequence.append(BEFORE)
                transaction.texts.append(BEFORE)
        transaction.end_ns = int(rows.end_ns[row])
        if statement:
            transaction.statements += 1
            if not transaction.sequence or transaction.sequence[-1] != rows.name(row):
                _add(transaction, rows.name(row), rows.text(row))
        if flags & NO_TRANSACTION or word in ("commit", "rollback"):
            self._close(transaction, "committed" if done and word != "rollback" else "rolled back")
            last = {"last": int(rows.query[row])}
            if word:
                last["commit_ns"] = int(rows.end_ns[row]) - int(rows.begin_ns[row])
            self._rows[-1] |= last
        return transaction.transaction

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

    def _begin(self, rows: TransactionRows, row: int) -> _Open:
        if len(self._open) >= MAX_OPEN:
            self._close(next(iter(self._open.values())), "unfinished")
        columns = (rows.query, rows.session, rows.server, rows.begin_ns)
        query, session, server, begin_ns = (int(column[row]) for column in columns)
        self._open[session] = transaction = _Open(query, session, server, begin_ns)
        return transaction

    def _close(self, transaction: _Open, outcome: str) -> None:
        del self._open[transaction.session]
        self._rows.append(
            {
                "transaction": transaction.transaction,
                "begin_ns": transaction.begin_ns,
                "end_ns": max(transaction.end_ns, transaction.begin_ns),
                "session": transaction.session,
                "server": transaction.server or None,
                "outcome": outcome,
                "statements": transaction.statements,
                "text": self._text(transaction),
                "last": None,
                "commit_ns": None,
            }
        )

    def _text(self, transaction: _Open) -> str:
        """The sequence as text for people; if it is cut, with a digest of the whole."""
        digest = blake2b("\0".join(transaction.sequence).encode(), digest_size=8).hexdigest()
        if (cached := self._kinds.get(digest)) is not None:
            return cached
        if len(self._kinds) >= MAX_KINDS:
            return OTHER
        text = "; ".join(transaction.texts[:MAX_SHOWN])
        if len(transaction.sequence) > MAX_SHOWN or "…" in text:
            text += f"; … [{digest}]"
        self._kinds[digest] = text
        return text


def _add(transaction: _Open, name: str, text: str) -> None:
    """Adds a statement of another name than the one before to the sequence."""
    if len(transaction.sequence) == MAX_STATEMENTS:
        return
    transaction.sequence.append(name)
    if len(transaction.texts) < MAX_SHOWN:
        cut = len(text) > STATEMENT_CHARACTERS
        transaction.texts.append(text[: STATEMENT_CHARACTERS - 1] + "…" if cut else text)
