"""Which user and database a session belongs to, for the queries that run in it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from qjoule.trace.columns import Array, distinct, names
from qjoule.trace.schema import SESSION_EVENTS, SESSIONS
from qjoule.trace.startup import Startup, parse_startup
from qjoule.trace.stream import Frame

#: Sessions remembered; applications that connect for each query must not cost memory for ever.
MAX_SESSIONS = 100_000
MAX_NAMES = 100_000
_OPEN = SESSION_EVENTS.index("open")


class Sessions:
    """Remembers the newest and the most recently used sessions of a stream."""

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._max_sessions = max_sessions
        self._startups: dict[int, tuple[int, int]] = {}  #: session to codes of user, database
        self._vocabulary: list[str | None] = []
        self._codes: dict[str, int] = {}
        self._rows: list[dict[str, object]] = []

    def add(self, frame: Frame) -> bool:
        """Takes in a SESSION block; false if it makes no sense."""
        record = frame.records[0]
        event = int(record["event"])
        if not 0 < event < len(SESSION_EVENTS) or int(record["t_ns"]) >= 1 << 63:
            return False
        session = int(record["session"])
        startup = Startup()
        if event == _OPEN:
            startup = parse_startup(int(record["server_kind"]), frame.text)
            self._remember(session, (self._code(startup.user), self._code(startup.database)))
        self._rows.append(
            {
                "session": session,
                "t_ns": int(record["t_ns"]),
                "event": SESSION_EVENTS[event],
                "server": int(record["server"]) or None,
                "pid": int(record["pid"]),
                "tgid": int(record["tgid"]),
                "user": startup.user,
                "database": startup.database,
                "application": startup.application,
            }
        )
        return True

    def users_databases(self, sessions: Array) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
        """User and database of each session; null where unknown."""
        codes, uniques = distinct(sessions)
        found = [self._recall(session) for session in uniques.tolist()]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        users = names(pairs[:, 0], self._vocabulary, codes)
        return users, names(pairs[:, 1], self._vocabulary, codes)

    def take_rows(self) -> pa.Table:
        """Rows of `sessions` since the last call."""
        rows, self._rows = self._rows, []
        return pa.Table.from_pylist(rows, SESSIONS)

    def _remember(self, session: int, startup: tuple[int, int]) -> None:
        self._startups.pop(session, None)
        self._startups[session] = startup
        if len(self._startups) > self._max_sessions:
            self._startups.pop(next(iter(self._startups)))

    def _recall(self, session: int) -> tuple[int, int]:
        startup = self._startups.get(session)
        if startup is None:
            return (-1, -1)
        self._remember(session, startup)
        return startup

    def _code(self, name: str | None) -> int:
        if name is None:
            return -1
        code = self._codes.get(name)
        if code is None:
            if len(self._vocabulary) >= MAX_NAMES:
                return -1
            code = self._codes[name] = len(self._vocabulary)
            self._vocabulary.append(name)
        return code
