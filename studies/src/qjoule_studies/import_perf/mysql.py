# SPDX-License-Identifier: Apache-2.0
"""Queries of MySQL and MariaDB in perf's recordings, by the rules of `bpf/mysql/symbol.bpf.c`."""

from __future__ import annotations

from qjoule.api.servers import PlannedServer, registry
from qjoule.api.traces import Command, Loss, QueryFlag
from qjoule_studies.import_perf.lives import Arguments, Lives, Thread
from qjoule_studies.import_perf.queries import Hook, PerfSupport

_DIALECT = registry.dialect("mysql")
#: include/my_command.h, MariaDB's include/mysql_com.h
_QUIT, _QUERY, _CHANGE_USER, _DUMP, _PREPARE = 1, 3, 17, 18, 22
_EXECUTE, _DUMP_GTID, _BULK_EXECUTE = 23, 30, 250
_OF_PREPARED = frozenset((_EXECUTE, 24, 25, 26, 28, _BULK_EXECUTE))
_WOULD_BLOCK = 2  #: MariaDB's enum dispatch_command_return, sql/sql_parse.h
_SUSPENDED_MAX = 100_000
#: What the probes read: see `qjoule_studies.import_perf.probes`.
_COMMAND_FIRST = "command=%di:u32 thd=%si:x64 bytes=%cx:u32 first=+0(%dx):x64 text=+0(%dx):string"
_THD_FIRST = (
    "command=%dx:u32 thd=%di:x64 bytes=+8(%si):u32 first=+0(+0(%si)):x64 text=+0(+0(%si)):string"
)


class _Rules:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._suspended: dict[int, Thread] = {}

    def take(
        self, event: bytes, thread: Thread, at: tuple[int, int, int], arguments: Arguments
    ) -> None:
        match event:
            case b"mysql_begin":
                self._begin(thread, at, arguments)
            case b"mysql_end":
                self._end(thread, at, arguments)
            case b"mysql_client":
                if thread.query:
                    self._lives.release(thread, at)

    def _begin(self, thread: Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        t_ns, cpu, tid = at
        session = arguments.number("thd") % (1 << 64)
        command = arguments.number("command") & 0xFF
        if thread.session != session:
            if thread.begin_ns:
                self._lives.begin(thread, at)
            thread.begin_ns = thread.query = 0
        thread.session = session
        if (was := self._suspended.pop(session, None)) is not None:
            was.tgid, was.server = thread.tgid, thread.server
            was.flags |= QueryFlag.RESUMED
            self._lives.threads[tid] = was
            self._lives.cpus.claim(cpu, t_ns, tid, was.query)
            return
        self._lives.begin(thread, at)
        if command in (_QUERY, _PREPARE):
            thread.command = Command.QUERY if command == _QUERY else Command.PREPARE
            thread.executions = int(command == _QUERY)
            self._lives.text(thread, arguments, _DIALECT)
            self._lives.lost[Loss.PREPARED] += command == _PREPARE
        elif command in _OF_PREPARED:
            thread.command = Command.EXECUTE
            thread.executions = int(command in (_EXECUTE, _BULK_EXECUTE))
            thread.flags |= QueryFlag.NO_TEXT
        elif command == _CHANGE_USER:
            thread.command = Command.CONNECT
        elif command in (_DUMP, _DUMP_GTID):
            self._lives.release(thread, at)
        thread.leaves = command == _QUIT

    def _end(self, thread: Thread, at: tuple[int, int, int], arguments: Arguments) -> None:
        if not thread.begin_ns:
            return
        pool = self._lives.servers[thread.server].pool
        if pool and arguments.number("result") == _WOULD_BLOCK:
            if len(self._suspended) < _SUSPENDED_MAX:
                self._suspended[thread.session] = thread
            self._lives.threads[at[2]] = Thread(thread.tgid, thread.server)
            self._lives.cpus.claim(at[1], at[0], at[2], 0)
            return
        self._lives.end(thread, at)
        if pool or thread.leaves:
            self._lives.release(thread, at)
        thread.leaves = False


def _hooks(_planned: PlannedServer) -> dict[str, Hook]:
    return {
        "mysql-begin-command-first": Hook("mysql_begin", _COMMAND_FIRST),
        "mysql-begin-thd-first": Hook("mysql_begin", _THD_FIRST),
        "mysql-end": Hook("mysql_end", "result=$retval:s32", is_return=True),
        "mysql-client": Hook("mysql_client"),
    }


SUPPORT = PerfSupport(
    families=("mysql",),
    hooks=_hooks,
    rules=_Rules,
    flavour=lambda comm: "mariadb" if comm.startswith(b"mariadb") else "mysql",
)
