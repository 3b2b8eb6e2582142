# SPDX-License-Identifier: Apache-2.0
"""Assigns queries to transactions, as far as the server's replies show them.

A transaction begins with the query whose reply reports that the session is now in one. It ends with
the query whose reply reports that it no longer is. A statement that commits itself is no
transaction, since its reply never reports one. Replies with rows report nothing and leave the
session's state unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from qjoule.contract import Command, QueryFlag
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

_WORD = re.compile(r"(?:xa )?(begin|start|commit|rollback)\b(?! (?:work )?to\b)", re.IGNORECASE)
_STATEMENTS = (Command.QUERY, Command.EXECUTE)

#: Fingerprint and text of a statement, by its shape's hash.
Named = Callable[[int], tuple[str, str]]


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
        self._kinds: dict[str, str] = {}
        self._rows: list[dict[str, object]] = []

    def assign(self, queries: Array) -> Array:
        """The transaction id of each query, (n,), 0: none. It is the id of the transaction's first
        query.
        """
        found = np.zeros(queries.size, np.uint64)
        session = queries["session"]
        begun = session[queries["flags"] & QueryFlag.IN_TRANSACTION != 0]
        sessions = np.union1d(begun, np.fromiter(self._open, np.uint64))
        rows = np.flatnonzero(np.isin(session, sessions[sessions != 0]))
        rows = rows[np.lexsort((queries["begin_ns"][rows], session[rows]))]
        for at in rows.tolist():
            found[at] = self._follow(queries[at])
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

    def _follow(self, query: Array) -> int:
        flags, session = int(query["flags"]), int(query["session"])
        one = self._open.get(session)
        statement = int(query["command"]) in _STATEMENTS
        name, text = self._named(int(query["shape"])) if statement else ("", "")
        done = statement and not flags & QueryFlag.ERROR
        word = found[1].lower() if done and (found := _WORD.match(text)) else ""
        if one is not None and word in ("begin", "start"):
            self._close(one, "committed")
            one = None
        if one is None:
            if not flags & QueryFlag.IN_TRANSACTION:
                return 0
            one = self._begin(query)
        one.end_ns = int(query["end_ns"])
        if statement:
            _add(one, name, text)
        if flags & QueryFlag.NO_TRANSACTION or word in ("commit", "rollback"):
            self._close(one, "committed" if done and word != "rollback" else "rolled back")
            last = {"last": int(query["query"])}
            if word:
                last["commit_ns"] = int(query["end_ns"]) - int(query["begin_ns"])
            self._rows[-1] |= last
        return one.transaction

    def _begin(self, query: Array) -> _Open:
        if len(self._open) >= MAX_OPEN:
            self._close(next(iter(self._open.values())), "unfinished")
        one = _Open(
            transaction=int(query["query"]),
            session=int(query["session"]),
            server=int(query["server"]),
            begin_ns=int(query["begin_ns"]),
        )
        self._open[one.session] = one
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
        known = self._kinds.get(digest)
        if known is not None:
            return known
        if len(self._kinds) >= MAX_KINDS:
            return OTHER
        text = "; ".join(one.texts[:MAX_SHOWN])
        if len(one.sequence) > MAX_SHOWN or "…" in text:
            text += f"; … [{digest}]"
        self._kinds[digest] = text
        return text


def _add(one: _Open, name: str, text: str) -> None:
    one.statements += 1
    if (one.sequence and one.sequence[-1] == name) or len(one.sequence) == MAX_STATEMENTS:
        return
    one.sequence.append(name)
    if len(one.texts) < MAX_SHOWN:
        cut = len(text) > STATEMENT_CHARACTERS
        one.texts.append(text[: STATEMENT_CHARACTERS - 1] + "…" if cut else text)
