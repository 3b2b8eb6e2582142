# SPDX-License-Identifier: Apache-2.0
"""Supports MySQL and MariaDB: recognises product and version, finds what can be attached to, and
decides the attach mode.

Functions are found by mangled name. The arguments of `dispatch_command` changed in MySQL 5.7 and in
MariaDB 10.5 and 10.6. MySQL has another function of that name in `xpl::dispatcher`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, attach_mode_by_connection
from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.function_code import AFTER, BEFORE, NUMBER, by_role, places, the_only
from qjoule.servers.mysql.memory import SessionMemory, session_memory
from qjoule.servers.mysql.settings import settings
from qjoule.servers.mysql.vocabulary import vocabulary
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.resolution import (
    Resolution,
    check_machine,
    file_key,
    probes_of,
    probes_or_why,
    within_bounds,
)
from qjoule.servers.support import THREAD_MODES, Functions, Identified, ServerSupport, Supported
from qjoule.servers.types import Server

#: MySQL manual, "X Plugin Options and System Variables", "Administrative Connection Management"
_X_PORT, _ADMIN_PORT = 33060, 33062
_X_SOCKET = "mysqlx"  #: prefix of its unix socket's name


class Role(StrEnum):
    """The registry's `roles`: what a probe reports."""

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
    CHILD_END = "mysql-child-end"  # return of CHILD_BEGIN's function


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
    ("MySQL from 5.7", f"{_DISPATCH}P3THDPK8COM_DATA19enum_server_command", Role.BEGIN_THD_FIRST),
)

#: Called to set up each client's socket: include/violite.h; MySQL 8 compiles it as C++.
CLIENTS = ("vio_keepalive", "_Z13vio_keepaliveP3Viob")
#: Called to log logins, bpf/mysql/session.bpf.c: sql/log.h.
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
    """Returns the functions that begin and end a query, by role.

    Raises:
        CannotResolve: one is missing, ambiguous, or has clones that callers may use instead.
    """
    roles = {name: role for _, name, role in SIGNATURES}
    what = "dispatch_command"
    function = the_only(executable, what, tuple(roles), prefixes=(_DISPATCH,), missing=what)
    return {roles[function.name]: function, Role.END: function}


#: Functions with which MySQL and MariaDB execute a stored procedure's statements, by role.
child_functions = partial(by_role, CHILDREN)


def name_functions(executable: Executable) -> dict[str, Symbol]:
    """Returns functions that get a session's socket, user and database, by role.

    Raises:
        CannotResolve: see `boundary_functions`.
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


_MARIADB_NAME = b"MariaDB"
_MARIADB_VERSION = re.compile(rb"\0(" + NUMBER + rb")-(?:[0-9A-Za-z.+~-]*)\Z")
_MYSQL_NAMES = (b"mysql-", b"MySQL ", b"percona-server-")
_MYSQL_VERSION = re.compile(rb"(" + NUMBER + rb")[^\d.]")
_GROUP = b"\0mysqld-"
_SERIES = re.compile(rb"(\d{1,2}\.\d{1,2})\0")
_PLUGIN = b"mysql_native_password"  #: MySQL's clients contain it, too


def identify(executable: Executable) -> Identified | None:
    """Recognises MariaDB by its version before its name, and MySQL by texts in every version."""
    strings = executable.constants()
    for position in places(strings, _MARIADB_NAME):
        match = _MARIADB_VERSION.search(strings[max(position - BEFORE, 0) : position])
        if match:
            return Identified("mariadb", match[1].decode())
    if executable.names_with_prefix(_DISPATCH) or _PLUGIN in strings:
        return Identified("mysql", _mysql_version(strings).decode(), certain=False)
    return None


def _mysql_version(strings: bytes) -> bytes:
    """Returns the version of the server's own series, if that is known: help texts name other
    versions, too. Otherwise returns the version that file names and banners name most often."""
    series = _mysql_series(strings)
    versions = Counter(
        version
        for version in _mysql_versions(strings)
        if not series or version.startswith(series + b".")
    ).most_common(1)
    return versions[0][0] if versions else series


def _mysql_series(strings: bytes) -> bytes:
    """Reads the series from the option group that the server reads for it, as in `mysqld-9.7`
    (MYSQL_BASE_VERSION of its build); empty if there is not exactly one."""
    series = set()
    for position in places(strings, _GROUP):
        begins = position + len(_GROUP)
        if match := _SERIES.match(strings, begins, begins + AFTER):
            series.add(match[1])
    return series.pop() if len(series) == 1 else b""


def _mysql_versions(strings: bytes) -> Iterator[bytes]:
    for name in _MYSQL_NAMES:
        for position in places(strings, name):
            begins = position + len(name)
            if match := _MYSQL_VERSION.match(strings, begins, begins + AFTER):
                yield match[1]


_BEGINS = (Role.BEGIN_COMMAND_FIRST, Role.BEGIN_THD_FIRST)
#: Facts found here, by their names in the registry.
FACTS = tuple(SessionMemory().facts())
#: The server keeps connection attributes only in its performance schema.
_NO_APPLICATION = (
    "sessions opened before tracing have no application (program_name) without --credentials FILE"
)
_NO_APPLICATIONS = (
    "on the symbol mode, no session has an application (program_name) without --credentials FILE"
)


def resolve(candidate: Candidate, _version: str) -> Resolution:
    """
    Raises:
        QjouleError: the identity of its file cannot be read.
    """
    executable = candidate.executable
    memory, notes = session_memory(executable)
    facts = within_bounds("mysql", memory.facts())
    resolution = Resolution(
        file_key(executable),
        facts=facts,
        notes=(*notes, _NO_APPLICATION),
        symbol_notes=(_NO_APPLICATIONS,),
    )
    try:
        check_machine(executable)
        children, no_children = probes_or_why(executable, child_functions)
        names, no_names = probes_or_why(executable, name_functions)
        resolution = replace(
            resolution, children=children, no_children=no_children, names=names, no_names=no_names
        )
        boundary = probes_of(executable, boundary_functions(executable))
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary)


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Returns the cost of a query: a probe on the begin, and one on the end if there is one."""
    if Role.END in costs:
        return costs[Role.END].both_ns
    return next((costs[role].entry_ns for role in _BEGINS if role in costs), 0)


def _x_protocol(server: Server) -> str:
    """Describes the sessions that do not speak MySQL's classic protocol; empty: there are none.

    Any further port may be the X Plugin's, which an option can move.
    """
    further = [port for port in server.ports[1:] if port != _ADMIN_PORT]
    ports = [_X_PORT] if _X_PORT in server.ports else further
    named = any(path.rpartition("/")[2].startswith(_X_SOCKET) for path in server.sockets)
    if server.flavour != "mysql" or not (ports or named):
        return ""
    where = f"port {', '.join(map(str, ports))}" if ports else "a unix socket"
    return f"sessions of the X Protocol ({where})"


def _choose_attach_mode(case: Case) -> Choice:
    """The X Plugin passes its statements to the function that the symbol mode probes."""
    return attach_mode_by_connection(case, unseen=_x_protocol(case.server))


_DIRECTORIES = ("sbin", "libexec")

SUPPORT = ServerSupport(
    name="mysql",
    flavours={"mariadb": "MariaDB", "mysql": "MySQL"},
    executables="mariadbd|mysqld",
    installed=tuple(f"usr/{d}/{name}" for name in ("mariadbd", "mysqld") for d in _DIRECTORIES),
    identify=identify,
    settings=settings,
    resolve=resolve,
    resolved=FACTS,
    choose_attach_mode=_choose_attach_mode,
    replaced_by_reads=(Role.END,),
    boundary_cost_ns=boundary_cost_ns,
    vocabulary=vocabulary,
)


_MARIADB, _MYSQL = ("10.11", "11.8"), ("8.0.15", "9.7")


def _functions(newest: str, tested: tuple[str, ...]) -> tuple[Functions, ...]:
    """Returns the signatures of one product; `newest`: the version line that the tests run."""
    name = newest.partition(" ")[0]
    in_tests = f"{name} {', '.join(tested)}"
    return tuple(
        Functions(versions, (signature,), in_tests if versions == newest else "no")
        for versions, signature, _role in SIGNATURES
        if versions.rpartition(", ")[2].startswith(name)
    )


#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "mariadb",
        "MariaDB",
        THREAD_MODES,
        _MARIADB,
        _functions("MariaDB from 10.6", _MARIADB),
    ),
    Supported("mysql", "MySQL", THREAD_MODES, _MYSQL, _functions("MySQL from 5.7", _MYSQL)),
)
