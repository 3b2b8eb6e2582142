# SPDX-License-Identifier: Apache-2.0
"""Finds the members of MySQL and MariaDB that bpf/mysql/memory.bpf.c reads: the running thread's
session, its prepared statements, its user, its default database, its sql_mode and its character
set.

Structs differ between versions and builds. So each offset is read from the code of a function,
named by its whole signature, that only uses this member. Code of another form gives no offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.function_code import CannotResolve, code_of, the_function
from qjoule.servers.mysql import memory_code as code

_CODE_BYTES = 512
_VARIABLE = "current_thd"  #: exported by MySQL

#: MariaDB: sql/sql_class.cc and sql/sql_prepare.cc.
_MARIADB_CURRENT, _MARIADB_CLOSE = "_current_thd", "_Z17mysqld_stmt_closeP3THDPc"
_MARIADB_TEXT, _MARIADB_DATABASE = "thd_query_string", "thd_current_db"
_MARIADB_SET_DATABASE = "_ZN18Prepared_statement6set_dbEPK25st_mysql_const_lex_string"
_MARIADB_USER = "thd_user_name"
_MARIADB_CHARSET, _MARIADB_STRICT = "thd_charset", "thd_is_strict_mode"
_MARIADB_VIO = "_ZN3THD16close_active_vioEv"
#: MySQL: sql/sql_class.cc, sql/sql_thd_api.cc, sql/sql_prepare.cc, sql/auth/sql_security_ctx.cc.
_MYSQL_CURRENT = "_Z19thd_get_current_thdv"
_MYSQL_FIND = "_ZN22Prepared_statement_map4findEm"
_MYSQL_CHECK = "_Z19mysql_stmt_precheckP3THDPK8COM_DATA19enum_server_commandPP18Prepared_statement"
_MYSQL_EXECUTE = "_Z19mysqld_stmt_executeP3THDP18Prepared_statementbmP8PS_PARAM"
_MYSQL_PROFILE = "_ZN9PROFILING16set_query_sourceEPKcm"
_MYSQL_SECURITY = "_Z24thd_get_security_contextP3THDPP16Security_context"
_MYSQL_USER = "_ZN16Security_context12user_matchesEPS_"
_MYSQL_USER_NAME = "_ZNK16Security_context4userEv"  #: not in 8.0
_MYSQL_DATABASE = "_ZN3THD6set_dbERK17MYSQL_LEX_CSTRING"
_MYSQL_CHARSET, _MYSQL_STRICT = "_Z11thd_charsetP3THD", "_Z18thd_is_strict_modePK3THD"
_MYSQL_VIO = "_ZN3THD19shutdown_active_vioEv"
#: MODE_STRICT_TRANS_TABLES and MODE_STRICT_ALL_TABLES: sql/system_variables.h, sql/sql_class.h.
_STRICT_BITS = 0x600000


@dataclass(frozen=True)
class SessionMemory:
    """Offsets in bytes; 0: unknown."""

    session: int = 0  #: of current_thd, below the thread pointer
    last_found: int = 0  #: in THD, the prepared statement that a command named last
    statement_id: int = 0  #: in a prepared statement, its id
    statement_text: int = 0  #: in a prepared statement, a pointer and a length
    security: int = 0  #: in THD, its security context
    user: int = 0  #: in a security context; may be 0 if `security` is known
    database: int = 0  #: in THD, a pointer and a length
    mode: int = 0  #: in THD, sql_mode
    client_charset: int = 0  #: in THD, a pointer: character_set_client
    vio: int = 0  #: in THD, a pointer to its client's connection

    def facts(self) -> dict[str, int]:
        """Returns the offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def session_memory(executable: Executable) -> tuple[SessionMemory, tuple[str, ...]]:
    """Returns the offsets, and for each missing part a line with what is unknown without it."""
    is_mariadb = bool(executable.functions(_MARIADB_CURRENT))
    memory, notes = SessionMemory(), []
    statements = "statements prepared before tracing have no text without --credentials"
    names = "sessions opened before tracing have no user and database"
    rules = "shapes end where sql_mode or the client's character set decides what a byte means"
    clients = "on the symbol mode, sessions opened before tracing have no client address"
    parts: tuple[tuple[Callable[[Executable, SessionMemory], SessionMemory], str], ...] = (
        (_mariadb_statements if is_mariadb else _mysql_statements, statements),
        (_mariadb_names if is_mariadb else _mysql_names, names),
        (_rules, rules),
        (_client, clients),
    )
    try:
        current = _MARIADB_CURRENT if is_mariadb else _MYSQL_CURRENT
        session = executable.below_thread_pointer(_VARIABLE)
        session = session or code.below_thread_pointer(_code(executable, current))
        memory = replace(memory, session=session)
    except CannotResolve as error:
        return memory, tuple(f"{lacks}: {error}" for _, lacks in parts)
    for part, lacks in parts:
        try:
            memory = part(executable, memory)
        except CannotResolve as error:
            notes.append(f"{lacks}: {error}")
    return memory, tuple(notes)


def _mariadb_statements(executable: Executable, memory: SessionMemory) -> SessionMemory:
    """`find_prepared_statement()` is static: a close calls it, or contains it."""
    close = the_function(executable, _MARIADB_CLOSE)
    pairs = code.found_by_id(_code(executable, _MARIADB_CLOSE), in_packet=True)
    for vaddr in code.calls(_code(executable, _MARIADB_CLOSE), close.vaddr):
        called = Symbol(f"a call in {_MARIADB_CLOSE}", vaddr, 0, close.table)
        _, its_code = code_of(executable, called, _CODE_BYTES)
        pairs |= code.found_by_id(its_code)
    if len(pairs) != 1:
        raise CannotResolve(f"{_MARIADB_CLOSE} finds statements in {len(pairs)} known ways")
    last_found, statement_id = pairs.pop()
    # A THD is a Statement, too: if this is its first part, both have their database there.
    database = code.address_of(_code(executable, _MARIADB_DATABASE))
    if database not in code.stores(_code(executable, _MARIADB_SET_DATABASE)):
        raise CannotResolve(f"{_MARIADB_SET_DATABASE} does not store a name at {database:#x}")
    text = code.address_of(_code(executable, _MARIADB_TEXT))
    return replace(memory, last_found=last_found, statement_id=statement_id, statement_text=text)


def _mariadb_names(executable: Executable, memory: SessionMemory) -> SessionMemory:
    security, user = code.pointer_in_pointer(_code(executable, _MARIADB_USER))
    database = code.address_of(_code(executable, _MARIADB_DATABASE))
    return replace(memory, security=security, user=user, database=database)


def _rules(executable: Executable, memory: SessionMemory) -> SessionMemory:
    """Accepts a member as sql_mode if the tested bits are those of the strict modes."""
    is_mariadb = bool(executable.functions(_MARIADB_CURRENT))
    charset = _MARIADB_CHARSET if is_mariadb else _MYSQL_CHARSET
    strict = _MARIADB_STRICT if is_mariadb else _MYSQL_STRICT
    return replace(
        memory,
        client_charset=code.returned_value(_code(executable, charset)),
        mode=code.member_tested(_code(executable, strict), _STRICT_BITS),
    )


def _mysql_statements(executable: Executable, memory: SessionMemory) -> SessionMemory:
    find = the_function(executable, _MYSQL_FIND)
    pairs = code.found_by_id(_code(executable, _MYSQL_FIND))
    check = the_function(executable, _MYSQL_CHECK)
    maps = code.first_arguments(_code(executable, _MYSQL_CHECK), check.vaddr, find.vaddr)
    if len(pairs) != 1 or len(maps) != 1:
        raise CannotResolve(f"{_MYSQL_FIND} is not as expected, or not called as expected")
    ((last_found, statement_id),) = pairs
    execute = the_function(executable, _MYSQL_EXECUTE)
    profile = the_function(executable, _MYSQL_PROFILE)
    texts = code.passed_strings(_code(executable, _MYSQL_EXECUTE), execute.vaddr, profile.vaddr)
    if not texts:
        raise CannotResolve(f"{_MYSQL_EXECUTE} does not pass its text as expected")
    return replace(
        memory,
        last_found=maps.pop() + last_found,
        statement_id=statement_id,
        statement_text=texts.pop(),
    )


def _mysql_names(executable: Executable, memory: SessionMemory) -> SessionMemory:
    security = code.returned_member(_code(executable, _MYSQL_SECURITY))
    if executable.functions(_MYSQL_USER_NAME):
        user = code.returned_string(_code(executable, _MYSQL_USER_NAME))
    else:
        user = code.compared_members(_code(executable, _MYSQL_USER))
    database = code.compared_string(_code(executable, _MYSQL_DATABASE))
    return replace(memory, security=security, user=user, database=database)


def _client(executable: Executable, memory: SessionMemory) -> SessionMemory:
    vio = _MARIADB_VIO if executable.functions(_MARIADB_CURRENT) else _MYSQL_VIO
    return replace(memory, vio=code.cleared_pointer(_code(executable, vio)))


def _code(executable: Executable, name: str) -> bytes:
    return code_of(executable, the_function(executable, name), _CODE_BYTES)[1]
