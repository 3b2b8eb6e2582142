# SPDX-License-Identifier: Apache-2.0
"""Queries of PostgreSQL in perf's recordings, by the rules of `bpf/postgres/symbol.bpf.c`."""

from __future__ import annotations

from qjoule.api.postgres import BackendStates, backend_states
from qjoule.api.servers import PlannedServer, registry
from qjoule.api.traces import Command, QueryFlag
from qjoule_studies.import_perf.lives import Arguments, Lives, Thread
from qjoule_studies.import_perf.queries import Hook, PerfSupport

_DIALECT = registry.dialect("postgres")
_STREAMS = b"START_RE"  #: a replication connection's work is no query

#: What the probes read: see `qjoule_studies.import_perf.probes`.
_ACTIVITY = "state=%di:u32 address=%si:x64 first=+0(%si):x64 text=+0(%si):string"
_NEWEST_STATES = 18  #: BackendState has other values from here on


class _Rules:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives

    def take(
        self, event: bytes, thread: Thread, at: tuple[int, int, int], arguments: Arguments
    ) -> None:
        match event:
            case b"pg_activity":
                self._activity(thread, at, arguments, backend_states(17))
            case b"pg18_activity":
                self._activity(thread, at, arguments, backend_states(18))
            case b"pg_run" | b"pg18_run":
                self._portal_run(thread, at, arguments)
            case b"pg_failed" | b"pg18_failed":
                if thread.begin_ns:
                    thread.flags |= QueryFlag.ERROR

    def _activity(
        self,
        thread: Thread,
        at: tuple[int, int, int],
        arguments: Arguments,
        states: BackendStates,
    ) -> None:
        state = arguments.number("state")
        if state in (states.running, states.fastpath):
            self._running(thread, at, arguments)
        elif state in (states.idle, states.idle_in_transaction, states.aborted):
            self._end(thread, at)

    def _running(self, thread: Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        address = arguments.number("address")
        if thread.has_run and thread.address != address:
            self._end(thread, at)  # the next one of a pipeline
        thread.session = thread.tgid
        if address and (arguments.text or b"")[: len(_STREAMS)].upper() == _STREAMS:
            self._lives.release(thread, at)
            return
        thread.is_reported = True
        if not thread.begin_ns or thread.address != address:
            self._begin(thread, at, arguments if address else None, address)

    def _begin(
        self, thread: Thread, at: tuple[int, int, int], arguments: Arguments | None, address: int
    ) -> None:
        if not thread.begin_ns:
            self._lives.begin(thread, at)
            thread.command = Command.QUERY
        thread.address = address
        if arguments is not None:
            self._lives.text(thread, arguments, _DIALECT)
        else:
            thread.flags |= QueryFlag.NO_TEXT

    def _end(self, thread: Thread, at: tuple[int, int, int]) -> None:
        if not thread.begin_ns:
            return
        if not thread.executions and thread.command == Command.QUERY:
            thread.command = Command.PREPARE  # parsed or bound, not run
        self._lives.end(thread, at)

    def _portal_run(self, thread: Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        if not thread.begin_ns or not arguments.number("top") & 0xFF:
            return
        if not arguments.numbers.get("start", 1) & 0xFF:
            if not thread.executions:
                thread.command = Command.EXECUTE
        elif thread.executions and thread.is_reported:
            # The next one of a pipeline, whose text lies where the last one's did.
            shape, size, address = thread.shape, thread.statement_bytes, thread.address
            no_text = thread.flags & QueryFlag.NO_TEXT
            self._end(thread, at)
            self._lives.begin(thread, at)
            thread.command = Command.QUERY
            thread.shape, thread.statement_bytes, thread.address = shape, size, address
            thread.flags |= no_text
            thread.executions = 1
        else:
            thread.executions = 1
        thread.is_reported = False
        thread.has_run = True


def _hooks(planned: PlannedServer) -> dict[str, Hook]:
    server = planned.server
    family = "pg18" if (server.major or 0) >= _NEWEST_STATES else "pg"
    facts = server.resolution.facts if server.resolution else planned.facts
    start = facts.get("portal-start", 0)
    run = "top=%dx:u8" + (f" start=+{start}(%di):u8" if start else "")
    return {
        "postgres-activity": Hook(f"{family}_activity", _ACTIVITY),
        "postgres-portal-run": Hook(f"{family}_run", run),
        "postgres-failed": Hook(f"{family}_failed"),
    }


SUPPORT = PerfSupport(
    families=("pg", "pg18"),
    hooks=_hooks,
    rules=_Rules,
    flavour=lambda _comm: "postgres",
    by_process=True,
    missing=("parallel workers of PostgreSQL are server background",),
)
