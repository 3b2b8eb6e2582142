"""Which function marks what: whole mangled signatures, so that an argument is where it should be.

A name alone is not enough. MySQL's `dispatch_command` changed its arguments in 5.7, MariaDB's in
10.5 and 10.6, and MySQL has another one in `xpl::dispatcher`. The mangled name carries the types
of all arguments (Itanium C++ ABI, "Mangling"), so equal name means equal layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qjoule.contract import ServerKind
from qjoule.errors import QjouleError
from qjoule.servers.elf import Executable, Symbol


class Role(StrEnum):
    """What a probe tells; the names are those of `qjoule-tracer --probe`."""

    MYSQL_BEGIN_COMMAND_FIRST = "mysql-begin-command-first"  # (command, THD *, text, length)
    MYSQL_BEGIN_THD_FIRST = "mysql-begin-thd-first"  # (THD *, const COM_DATA *, command)
    MYSQL_END = "mysql-end"  # return of the same function
    MYSQL_CLIENT = "mysql-client"  # (Vio *, bool)
    MYSQL_LOG_THD_FIRST = "mysql-log-thd-first"  # (THD *, command, const char *format, ...)
    MYSQL_LOG_LOGGER_FIRST = "mysql-log-logger-first"  # (Query_logger *, THD *, command, ...)
    MYSQL_DATABASE = "mysql-database"  # (THD *, const LEX_CSTRING *name, bool force)
    MYSQL_DATABASE_END = "mysql-database-end"  # return of the same function
    MYSQL_CHILD_BEGIN = "mysql-child-begin"  # a statement of a procedure: bpf/mysql/children.bpf.c
    MYSQL_CHILD_TEXT = "mysql-child-text"  # (THD *, const char *text, size_t length)
    MYSQL_CHILD_END = "mysql-child-end"  # return of the first
    POSTGRES_ACTIVITY = "postgres-activity"  # (BackendState, const char *text)
    POSTGRES_PORTAL_RUN = "postgres-portal-run"  # (Portal, long count, bool isTopLevel, ...)
    POSTGRES_FAILED = (
        "postgres-failed"  # (), where a client's statement has failed, and nowhere else
    )
    POSTGRES_LAUNCH_WORKERS = "postgres-launch-workers"  # (ParallelContext *), in the leader
    POSTGRES_JOIN_LEADER = "postgres-join-leader"  # (PGPROC *leader, int pid), in the worker
    VOLTDB_BEGIN = "voltdb-begin"  # (JNIEnv *, jobject engine, ...), see bpf/voltdb/symbol.bpf.c
    VOLTDB_END = "voltdb-end"  # return of the same function
    CASSANDRA_REQUEST_BEGINS = (
        "cassandra-request-begins"  # agent/jni/marker.c: (text, bytes, statement, …)
    )
    CASSANDRA_REQUEST_SAYS = "cassandra-request-says"  # (const void *tags, bytes)
    CASSANDRA_REQUEST_ENDS = "cassandra-request-ends"
    CASSANDRA_CONNECTION_MET = "cassandra-connection-met"  # (session, const void *ends)
    CASSANDRA_TASK_QUEUED = "cassandra-task-queued"  # (request), in the thread that has the request
    CASSANDRA_TASK_BEGINS = "cassandra-task-begins"  # (request), in another one
    CASSANDRA_TASK_ENDS = "cassandra-task-ends"
    MONGODB_REQUEST = "mongodb-request"  # (result *, this, OperationContext *, const Message &)
    MONGODB_DONE = "mongodb-done"  # return of the same function


class CannotResolve(QjouleError):
    """A probe point is missing or not certain; the message says which and why."""


_DISPATCH = "_Z16dispatch_command"

#: sql/sql_parse.h of each version: (versions, mangled name, role).
MYSQL_SIGNATURES = (
    (
        "MySQL to 5.6, MariaDB to 10.1",
        f"{_DISPATCH}19enum_server_commandP3THDPcj",
        Role.MYSQL_BEGIN_COMMAND_FIRST,
    ),
    (  # is_com_multi, is_next_command
        "MariaDB 10.2 to 10.5",
        f"{_DISPATCH}19enum_server_commandP3THDPcjbb",
        Role.MYSQL_BEGIN_COMMAND_FIRST,
    ),
    (  # blocking
        "MariaDB from 10.6",
        f"{_DISPATCH}19enum_server_commandP3THDPcjb",
        Role.MYSQL_BEGIN_COMMAND_FIRST,
    ),
    (
        "MySQL from 5.7",
        f"{_DISPATCH}P3THDPK8COM_DATA19enum_server_command",
        Role.MYSQL_BEGIN_THD_FIRST,
    ),
)

#: What sets up each client's socket: include/violite.h; MySQL 8 compiles it as C++.
MYSQL_CLIENTS = ("vio_keepalive", "_Z13vio_keepaliveP3Viob")
#: Where logins are told, bpf/mysql/session.bpf.c: sql/log.h.
MYSQL_LOGS = (
    ("_Z17general_log_printP3THD19enum_server_commandPKcz", Role.MYSQL_LOG_THD_FIRST),
    (
        "_ZN12Query_logger17general_log_printEP3THD19enum_server_commandPKcz",
        Role.MYSQL_LOG_LOGGER_FIRST,
    ),
)
#: MariaDB's and MySQL 8.0's sql/sql_db.h; a name is a pointer and a length in both.
MYSQL_DATABASES = (
    "_Z15mysql_change_dbP3THDPK25st_mysql_const_lex_stringb",
    "_Z15mysql_change_dbP3THDRK17MYSQL_LEX_CSTRINGb",
)

_EXECUTE = "_ZN13sp_instr_stmt7executeEP3THDPj"
#: MariaDB's sql/sp_head.h, MySQL's sql/sp_instr.h; sql/sql_parse.h. Older ones have another length.
MYSQL_CHILDREN = {
    Role.MYSQL_CHILD_BEGIN: _EXECUTE,
    Role.MYSQL_CHILD_TEXT: "_Z11alloc_queryP3THDPKcm",
    Role.MYSQL_CHILD_END: _EXECUTE,
}

#: C functions have no types in their names; the arguments read are the same from 13 to 18
#: (src/include/utils/backend_status.h and portal.h, tcop/pquery.h, access/parallel.h,
#: storage/proc.h).
POSTGRES_FUNCTIONS = {
    Role.POSTGRES_ACTIVITY: "pgstat_report_activity",
    Role.POSTGRES_PORTAL_RUN: "PortalRun",
    Role.POSTGRES_FAILED: "PortalErrorCleanup",
}
POSTGRES_PARALLEL = {
    Role.POSTGRES_LAUNCH_WORKERS: "LaunchParallelWorkers",
    Role.POSTGRES_JOIN_LEADER: "BecomeLockGroupMember",
}
POSTGRES_MAJORS = range(13, 19)


#: JNI's name of a method (JNI specification, "Resolving Native Method Names") has no types either;
#: its arguments are those of VoltDB 10 (org/voltdb/jni/ExecutionEngine.java).
VOLTDB_FUNCTION = "Java_org_voltdb_jni_ExecutionEngine_nativeExecutePlanFragments"
_HANDLE = "13handleRequestEPNS_16OperationContextERKNS_7MessageE"

#: src/mongo/db/service_entry_point_mongod.h, later service_entry_point_shard_role.h: the result,
#: DbResponse or Future<DbResponse>, is no part of the name; both are returned in memory. After 8.0
#: it is also told when the request came.
MONGODB_SIGNATURES = (
    ("MongoDB 3.6 to 7", f"_ZN5mongo23ServiceEntryPointMongod{_HANDLE}"),
    ("MongoDB 8.0", f"_ZN5mongo26ServiceEntryPointShardRole{_HANDLE}"),
    ("MongoDB after 8.0", f"_ZN5mongo26ServiceEntryPointShardRole{_HANDLE}NS_6Date_tE"),
)
_MONGODB_PREFIXES = (
    "_ZN5mongo23ServiceEntryPointMongod13handleRequest",
    "_ZN5mongo26ServiceEntryPointShardRole13handleRequest",
)


@dataclass(frozen=True)
class BackendStates:
    """PostgreSQL's enum BackendState, as `pgstat_report_activity` gets it."""

    idle: int
    running: int
    idle_in_transaction: int
    fastpath: int
    aborted: int


def backend_states(major: int | None) -> BackendStates:
    """The states of a major version; 18 put STATE_STARTING before all others.

    Raises:
        CannotResolve: this version's states are not known.
    """
    if major is None or major not in POSTGRES_MAJORS:
        known = f"{POSTGRES_MAJORS[0]} to {POSTGRES_MAJORS[-1]}"
        version = "of unknown version" if major is None else str(major)
        raise CannotResolve(f"PostgreSQL {version}: backend states are known for {known}")
    first = 2 if major >= 18 else 1
    return BackendStates(first, first + 1, first + 2, first + 3, first + 4)


def boundary_functions(executable: Executable, kind: ServerKind) -> dict[Role, Symbol]:
    """The functions that begin and end a query, by role.

    Raises:
        CannotResolve: one is missing, ambiguous, or has clones that callers may use instead.
    """
    if kind is ServerKind.MYSQL:
        return _mysql(executable)
    if kind is ServerKind.VOLTDB:
        fragments = _the_one(executable, VOLTDB_FUNCTION)
        return {Role.VOLTDB_BEGIN: fragments, Role.VOLTDB_END: fragments}
    if kind is ServerKind.MONGODB:
        return _mongodb(executable)
    return {role: _the_one(executable, name) for role, name in POSTGRES_FUNCTIONS.items()}


def parallel_functions(executable: Executable) -> dict[Role, Symbol]:
    """PostgreSQL's functions that join a parallel worker to its leader, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    return {role: _the_one(executable, name) for role, name in POSTGRES_PARALLEL.items()}


def child_functions(executable: Executable) -> dict[Role, Symbol]:
    """What MySQL and MariaDB execute a stored procedure's statements by, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    return {role: _the_one(executable, name) for role, name in MYSQL_CHILDREN.items()}


def name_functions(executable: Executable) -> dict[Role, Symbol]:
    """What MySQL and MariaDB give a session's socket, user and database to, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    logs = dict(MYSQL_LOGS)
    log = _the_only(executable, "general_log_print", tuple(logs))
    change = _the_only(executable, "mysql_change_db", MYSQL_DATABASES)
    return {
        Role.MYSQL_CLIENT: _the_only(executable, "vio_keepalive", MYSQL_CLIENTS),
        logs[log.name]: log,
        Role.MYSQL_DATABASE: change,
        Role.MYSQL_DATABASE_END: change,
    }


def _the_only(executable: Executable, what: str, names: tuple[str, ...]) -> Symbol:
    """The one of these that there is."""
    present = [name for name in names if executable.functions(name)]
    if not present:
        raise _absent(f"{what} of a known signature", executable)
    if len(present) > 1:
        raise CannotResolve(f"two signatures of {what}: {' and '.join(present)}")
    return _the_one(executable, present[0])


def _mysql(executable: Executable) -> dict[Role, Symbol]:
    present = {name: role for _, name, role in MYSQL_SIGNATURES if executable.functions(name)}
    if len(present) > 1:
        raise CannotResolve(f"two signatures of dispatch_command: {' and '.join(present)}")
    if not present:
        strangers = executable.names_with_prefix(_DISPATCH)[:1]
        if strangers:
            raise CannotResolve(
                f"dispatch_command has a signature that is not known: {strangers[0]}"
            )
        raise _absent("dispatch_command", executable)
    ((name, role),) = present.items()
    function = _the_one(executable, name)
    return {role: function, Role.MYSQL_END: function}


def _mongodb(executable: Executable) -> dict[Role, Symbol]:
    present = [name for _, name in MONGODB_SIGNATURES if executable.functions(name)]
    if len(present) > 1:
        raise CannotResolve(f"two signatures of handleRequest: {' and '.join(present)}")
    if not present:
        for prefix in _MONGODB_PREFIXES:
            if strangers := executable.names_with_prefix(prefix)[:1]:
                raise CannotResolve(
                    f"handleRequest has a signature that is not known: {strangers[0]}"
                )
        raise _absent("handleRequest of a mongod", executable)
    function = _the_one(executable, present[0])
    return {Role.MONGODB_REQUEST: function, Role.MONGODB_DONE: function}


def _the_one(executable: Executable, name: str) -> Symbol:
    found = executable.functions(name)
    if not found:
        raise _absent(name, executable)
    if len(found) > 1:
        raise CannotResolve(f"{len(found)} functions are named {name}")
    # The compiler may send some callers to a copy (.constprop, .isra) or inline a function's head
    # and call its rest (.part); probes on the whole would then miss calls. `.cold` is only a jump
    # target inside the function.
    for clone in executable.names_with_prefix(name + "."):
        if not clone.removeprefix(name).startswith(".cold"):
            raise CannotResolve(f"{name} also exists as {clone}, which some callers may use")
    return found[0]


def _absent(name: str, executable: Executable) -> CannotResolve:
    """Says what was looked through, and what would help."""
    tables = " or ".join(executable.tables) if executable.tables else "a file without symbols"
    stripped = not set(executable.tables) & {".symtab", ".gnu_debugdata"}
    mend = "; it is stripped: use a build that is not" if stripped else ""
    return CannotResolve(f"no {name} in {tables}{mend}")
