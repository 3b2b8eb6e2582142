# SPDX-License-Identifier: Apache-2.0
"""MySQL's and MariaDB's functions that probes are attached to, by their mangled names.

The arguments of `dispatch_command` changed in MySQL 5.7 and in MariaDB 10.5 and 10.6. MySQL has
another function of that name in `xpl::dispatcher`.
"""

from __future__ import annotations

from enum import StrEnum

from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.signatures import CannotResolve, absent, the_one, the_only


class Role(StrEnum):
    """What a probe reports: `roles` of the registry."""

    BEGIN_COMMAND_FIRST = "mysql-begin-command-first"  # (command, THD *, text, length)
    BEGIN_THD_FIRST = "mysql-begin-thd-first"  # (THD *, const COM_DATA *, command)
    END = "mysql-end"  # return of the same function
    CLIENT = "mysql-client"  # (Vio *, bool)
    LOG_THD_FIRST = "mysql-log-thd-first"  # (THD *, command, const char *format, ...)
    LOG_LOGGER_FIRST = "mysql-log-logger-first"  # (Query_logger *, THD *, command, ...)
    DATABASE = "mysql-database"  # (THD *, const LEX_CSTRING *name, bool force)
    DATABASE_END = "mysql-database-end"  # return of the same function
    CHILD_BEGIN = "mysql-child-begin"  # a statement of a procedure: bpf/mysql/children.bpf.c
    CHILD_TEXT = "mysql-child-text"  # (THD *, const char *text, size_t length)
    CHILD_END = "mysql-child-end"  # return of the first


_DISPATCH = "_Z16dispatch_command"

#: sql/sql_parse.h of each version: (versions, mangled name, role).
SIGNATURES = (
    (
        "MySQL to 5.6, MariaDB to 10.1",
        f"{_DISPATCH}19enum_server_commandP3THDPcj",
        Role.BEGIN_COMMAND_FIRST,
    ),
    (  # is_com_multi, is_next_command
        "MariaDB 10.2 to 10.5",
        f"{_DISPATCH}19enum_server_commandP3THDPcjbb",
        Role.BEGIN_COMMAND_FIRST,
    ),
    (  # blocking
        "MariaDB from 10.6",
        f"{_DISPATCH}19enum_server_commandP3THDPcjb",
        Role.BEGIN_COMMAND_FIRST,
    ),
    (
        "MySQL from 5.7",
        f"{_DISPATCH}P3THDPK8COM_DATA19enum_server_command",
        Role.BEGIN_THD_FIRST,
    ),
)

#: Sets up each client's socket: include/violite.h; MySQL 8 compiles it as C++.
CLIENTS = ("vio_keepalive", "_Z13vio_keepaliveP3Viob")
#: Logins are reported here, bpf/mysql/session.bpf.c: sql/log.h.
LOGS = (
    ("_Z17general_log_printP3THD19enum_server_commandPKcz", Role.LOG_THD_FIRST),
    (
        "_ZN12Query_logger17general_log_printEP3THD19enum_server_commandPKcz",
        Role.LOG_LOGGER_FIRST,
    ),
)
#: MariaDB's and MySQL 8.0's sql/sql_db.h; a name is a pointer and a length in both.
DATABASES = (
    "_Z15mysql_change_dbP3THDPK25st_mysql_const_lex_stringb",
    "_Z15mysql_change_dbP3THDRK17MYSQL_LEX_CSTRINGb",
)

_EXECUTE = "_ZN13sp_instr_stmt7executeEP3THDPj"
#: MariaDB's sql/sp_head.h, MySQL's sql/sp_instr.h; sql/sql_parse.h. Older ones have another length.
CHILDREN = {
    Role.CHILD_BEGIN: _EXECUTE,
    Role.CHILD_TEXT: "_Z11alloc_queryP3THDPKcm",
    Role.CHILD_END: _EXECUTE,
}


def boundary_functions(executable: Executable) -> dict[str, Symbol]:
    """The functions that begin and end a query, by role.

    Raises:
        CannotResolve: one is missing, ambiguous, or has clones that callers may use instead.
    """
    present = {name: role for _, name, role in SIGNATURES if executable.functions(name)}
    if len(present) > 1:
        raise CannotResolve(f"two signatures of dispatch_command: {' and '.join(present)}")
    if not present:
        strangers = executable.names_with_prefix(_DISPATCH)[:1]
        if strangers:
            raise CannotResolve(
                f"dispatch_command has a signature that is not known: {strangers[0]}"
            )
        raise absent("dispatch_command", executable)
    ((name, role),) = present.items()
    function = the_one(executable, name)
    return {role: function, Role.END: function}


def child_functions(executable: Executable) -> dict[str, Symbol]:
    """Functions with which MySQL and MariaDB execute a stored procedure's statements, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    return {role: the_one(executable, name) for role, name in CHILDREN.items()}


def name_functions(executable: Executable) -> dict[str, Symbol]:
    """Functions to which MySQL and MariaDB pass a session's socket, user and database, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    logs = dict(LOGS)
    log = the_only(executable, "general_log_print", tuple(logs))
    change = the_only(executable, "mysql_change_db", DATABASES)
    return {
        Role.CLIENT: the_only(executable, "vio_keepalive", CLIENTS),
        logs[log.name]: log,
        Role.DATABASE: change,
        Role.DATABASE_END: change,
    }
