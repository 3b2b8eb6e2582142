"""Which query each server thread works for, from uprobes on the server's functions.

The rules are those of `bpf/mysql/symbol.bpf.c` and `bpf/postgres/symbol.bpf.c`: a thread that waits
for its client works for its next query from when it wakes up, and for the last one until it sleeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.contract import (
    LOSS_COUNT,
    QUERY,
    TRACER_CPU,
    Command,
    Dialect,
    Loss,
    QueryFlag,
    Rung,
)
from qjoule.imports.perf.arguments import STRING_BYTES, Arguments
from qjoule.imports.perf.cpus import Cpus
from qjoule.imports.perf.servers import Imported
from qjoule.imports.perf.statements import Shapes
from qjoule.servers.postgres.signatures import BackendStates, backend_states
from qjoule.trace.columns import Array

#: include/my_command.h, MariaDB's include/mysql_com.h
_QUIT, _QUERY, _CHANGE_USER, _DUMP, _PREPARE = 1, 3, 17, 18, 22
_EXECUTE, _DUMP_GTID, _BULK_EXECUTE = 23, 30, 250
_OF_PREPARED = frozenset((_EXECUTE, 24, 25, 26, 28, _BULK_EXECUTE))
_WOULD_BLOCK = 2  #: MariaDB's enum dispatch_command_return, sql/sql_parse.h
_SUSPENDED_MAX = 100_000
_STREAMS = b"START_RE"  #: a replication connection's work is no query


@dataclass(slots=True)
class _Thread:
    tgid: int
    server: int
    query: int = 0  #: the one that it works for, or will when it wakes up
    begin_ns: int = 0  #: 0: it waits
    session: int = 0
    shape: int = 0
    statement_bytes: int = 0
    executions: int = 0
    flags: int = 0
    command: int = Command.OTHER
    leaves: bool = False
    address: int = 0  #: of its text
    has_run: bool = False
    is_reported: bool = False


class Queries:
    """Hits of probes to queries. Those before the trace begins are not to be told here."""

    def __init__(self, servers: Sequence[Imported], shapes: Shapes, cpus: Cpus) -> None:
        self._servers = {server.id: server for server in servers}
        self._shapes = shapes
        self._cpus = cpus
        self._threads: dict[int, _Thread] = {}
        self._suspended: dict[int, _Thread] = {}
        self._last_id = 0
        self._rows: list[tuple[object, ...]] = []
        self._lost = {Loss.TEXT: 0, Loss.PREPARED: 0, Loss.QUERY: 0}
        self._lost_told = dict(self._lost)
        self.hit: set[int] = set()  #: servers whose probes were

    def take(
        self, event: bytes, server: int, of: tuple[int, int, int, int], arguments: Arguments
    ) -> None:
        """One hit of a probe, `of` (time, CPU, thread, process). Raises `BadArguments`."""
        t_ns, cpu, tid, tgid = of
        thread = self._threads.get(tid)
        if thread is None or thread.tgid != tgid:
            thread = self._threads[tid] = _Thread(tgid, server)
        at = (t_ns, cpu, tid)
        self.hit.add(server)
        match event:
            case b"mysql_begin":
                self._mysql_begin(thread, at, arguments)
            case b"mysql_end":
                self._mysql_end(thread, at, arguments)
            case b"mysql_client":
                if thread.query:
                    self._release(thread, at)
            case b"pg_activity":
                self._activity(thread, at, arguments, backend_states(17))
            case b"pg18_activity":
                self._activity(thread, at, arguments, backend_states(18))
            case b"pg_run" | b"pg18_run":
                self._portal_run(thread, at, arguments)
            case b"pg_failed" | b"pg18_failed":
                if thread.begin_ns:
                    thread.flags |= QueryFlag.ERROR

    def exited(self, tid: int, t_ns: int) -> None:
        """The thread has ended, and with it what it worked for."""
        thread = self._threads.pop(tid, None)
        if thread is not None and thread.begin_ns:
            thread.flags |= 0 if thread.command == Command.OTHER else QueryFlag.OPEN
            self._tell(thread, tid, t_ns)
        self._cpus.forget(tid)

    def finish(self, t_ns: int) -> None:
        """The trace ends: what is still worked for is told as far as it got."""
        for tid, thread in self._threads.items():
            if thread.begin_ns:
                thread.flags |= QueryFlag.OPEN
                self._tell(thread, tid, t_ns)

    def take_records(self) -> Array:
        """QUERY records since the last call."""
        rows, self._rows = self._rows, []
        return np.array(rows, QUERY)

    def take_losses(self, t_ns: int) -> Array:
        """LOSS records of what has changed since the last call."""
        changed = {k: n for k, n in self._lost.items() if n != self._lost_told[k]}
        self._lost_told |= changed
        return np.array([(t_ns, n, 0, TRACER_CPU, k) for k, n in changed.items()], LOSS_COUNT)

    # ---- the life of a query --------------------------------------------------------------------

    def _reset(self, thread: _Thread) -> None:
        self._last_id += 1
        thread.query = self._last_id
        thread.begin_ns = thread.shape = thread.statement_bytes = thread.executions = 0
        thread.flags = thread.address = 0
        thread.command = Command.OTHER
        thread.has_run = False

    def _begin(self, thread: _Thread, at: tuple[int, int, int]) -> None:
        t_ns, cpu, tid = at
        if thread.begin_ns:  # its end was lost
            thread.flags |= QueryFlag.NO_END
            self._tell(thread, tid, thread.begin_ns)
            self._lost[Loss.QUERY] += 1
            self._reset(thread)
        elif not thread.query:
            self._reset(thread)
        thread.begin_ns = t_ns
        self._cpus.claim(cpu, t_ns, tid, thread.query)

    def _end(self, thread: _Thread, at: tuple[int, int, int]) -> None:
        t_ns, _, tid = at
        if not thread.begin_ns:
            return
        self._tell(thread, tid, t_ns)
        self._reset(thread)
        self._cpus.works_for(tid, thread.query)

    def _release(self, thread: _Thread, at: tuple[int, int, int]) -> None:
        t_ns, cpu, tid = at
        self._reset(thread)
        thread.query = 0
        self._cpus.claim(cpu, t_ns, tid, 0)

    def _tell(self, thread: _Thread, tid: int, end_ns: int) -> None:
        self._rows.append(
            (
                *(thread.query, thread.begin_ns, end_ns, thread.session, thread.shape),
                *(tid, thread.tgid, thread.executions, thread.flags, thread.statement_bytes),
                *(thread.server, Rung.SYMBOL, thread.command, 0, b"", 0, 0, 0),
            )
        )

    def _text(self, thread: _Thread, arguments: Arguments, dialect: Dialect) -> None:
        text = arguments.statement()
        told = arguments.numbers.get("bytes")
        if text is None or (told is not None and told > STRING_BYTES):
            thread.flags |= QueryFlag.NO_TEXT
            thread.shape = 0
            self._lost[Loss.TEXT] += 1
            return
        size = len(text) if told is None else told
        thread.statement_bytes = size
        thread.shape = self._shapes.shape_of(text[:size], size, dialect, thread.server)
        if size > len(text):
            thread.flags |= QueryFlag.TRUNCATED

    # ---- MySQL and MariaDB ----------------------------------------------------------------------

    def _mysql_begin(self, thread: _Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        t_ns, cpu, tid = at
        session = arguments.number("thd") % (1 << 64)
        command = arguments.number("command") & 0xFF
        if thread.session != session:
            if thread.begin_ns:
                self._begin(thread, at)
            thread.begin_ns = thread.query = 0
        thread.session = session
        if (was := self._suspended.pop(session, None)) is not None:
            was.tgid, was.server = thread.tgid, thread.server
            was.flags |= QueryFlag.RESUMED
            self._threads[tid] = was
            self._cpus.claim(cpu, t_ns, tid, was.query)
            return
        self._begin(thread, at)
        if command in (_QUERY, _PREPARE):
            thread.command = Command.QUERY if command == _QUERY else Command.PREPARE
            thread.executions = int(command == _QUERY)
            self._text(thread, arguments, Dialect.MYSQL)
            self._lost[Loss.PREPARED] += command == _PREPARE
        elif command in _OF_PREPARED:
            thread.command = Command.EXECUTE
            thread.executions = int(command in (_EXECUTE, _BULK_EXECUTE))
            thread.flags |= QueryFlag.NO_TEXT
        elif command == _CHANGE_USER:
            thread.command = Command.CONNECT
        elif command in (_DUMP, _DUMP_GTID):
            self._release(thread, at)
        thread.leaves = command == _QUIT

    def _mysql_end(self, thread: _Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        if not thread.begin_ns:
            return
        pool = self._servers[thread.server].pool
        if pool and arguments.number("result") == _WOULD_BLOCK:
            if len(self._suspended) < _SUSPENDED_MAX:
                self._suspended[thread.session] = thread
            self._threads[at[2]] = _Thread(thread.tgid, thread.server)
            self._cpus.claim(at[1], at[0], at[2], 0)
            return
        self._end(thread, at)
        if pool or thread.leaves:
            self._release(thread, at)
        thread.leaves = False

    # ---- PostgreSQL -----------------------------------------------------------------------------

    def _activity(
        self,
        thread: _Thread,
        at: tuple[int, int, int],
        arguments: Arguments,
        states: BackendStates,
    ) -> None:
        state = arguments.number("state")
        if state in (states.running, states.fastpath):
            self._running(thread, at, arguments)
        elif state in (states.idle, states.idle_in_transaction, states.aborted):
            self._pg_end(thread, at)

    def _running(self, thread: _Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        address = arguments.number("address")
        if thread.has_run and thread.address != address:
            self._pg_end(thread, at)  # the next one of a pipeline
        thread.session = thread.tgid
        if address and (arguments.text or b"")[: len(_STREAMS)].upper() == _STREAMS:
            self._release(thread, at)
            return
        thread.is_reported = True
        if not thread.begin_ns or thread.address != address:
            self._pg_begin(thread, at, arguments if address else None, address)

    def _pg_begin(
        self, thread: _Thread, at: tuple[int, int, int], arguments: Arguments | None, address: int
    ) -> None:
        if not thread.begin_ns:
            self._begin(thread, at)
            thread.command = Command.QUERY
        thread.address = address
        if arguments is not None:
            self._text(thread, arguments, Dialect.POSTGRES)
        else:
            thread.flags |= QueryFlag.NO_TEXT

    def _pg_end(self, thread: _Thread, at: tuple[int, int, int]) -> None:
        if not thread.begin_ns:
            return
        if not thread.executions and thread.command == Command.QUERY:
            thread.command = Command.PREPARE  # parsed or bound, not run
        self._end(thread, at)

    def _portal_run(self, thread: _Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        if not thread.begin_ns or not arguments.number("top") & 0xFF:
            return
        if not arguments.numbers.get("start", 1) & 0xFF:
            if not thread.executions:
                thread.command = Command.EXECUTE
        elif thread.executions and thread.is_reported:
            # The next one of a pipeline, whose text lies where the last one's did.
            shape, size, address = thread.shape, thread.statement_bytes, thread.address
            no_text = thread.flags & QueryFlag.NO_TEXT
            self._pg_end(thread, at)
            self._begin(thread, at)
            thread.command = Command.QUERY
            thread.shape, thread.statement_bytes, thread.address = shape, size, address
            thread.flags |= no_text
            thread.executions = 1
        else:
            thread.executions = 1
        thread.is_reported = False
        thread.has_run = True
