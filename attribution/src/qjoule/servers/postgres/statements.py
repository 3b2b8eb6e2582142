# SPDX-License-Identifier: Apache-2.0
"""Finds where a PostgreSQL backend keeps its prepared statements and the queryid of the running
statement (bpf/postgres/prepared.bpf.c).

`prepared_queries` (src/backend/commands/prepare.c) is a static variable, so it has no symbol.
`FetchPreparedStatement()` passes it to `hash_search()`. `pg_prepared_statement()`, behind the view
pg_prepared_statements, follows its entries to the texts. `hash_seq_search()` walks over any such
table (src/backend/utils/hash/dynahash.c). All three functions are exported.

`PortalDefineQuery(portal, ..., stmts, cplan)` stores its fifth argument into the portal
(src/backend/utils/mmgr/portalmem.c). `ExecutorStart(queryDesc)` passes the queryId of the
PlannedStmt that its argument points to, to `pgstat_report_query_id()` (src/backend/executor/
execMain.c, since 14). All three functions are exported.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from qjoule.servers.elf import Executable
from qjoule.servers.function_code import (
    CannotResolve,
    Place,
    Step,
    body_steps,
    code_of,
    steps,
    the_function,
)

_FETCH, _SEARCH = "FetchPreparedStatement", "hash_search"
_VIEW, _TEXT = "pg_prepared_statement", "cstring_to_text"
_WALK = "hash_seq_search"
_CODE_BYTES = 1024
#: Offsets of dir, ssize and sshift in an HTAB, the same from 13 to 18.
_TABLE_MEMBERS = {8, 0x50, 0x58}
_FREE_LISTS = 0x100  #: less than the lists of free entries at the begin of a HASHHDR
_FIRST = "rdi"


@dataclass(frozen=True)
class PreparedStatements:
    """Offsets in bytes; 0: unknown."""

    statements: int = 0  #: prepared_queries, from the start of the executable's data
    last_bucket: int = 0  #: max_bucket in a HASHHDR; high_mask and low_mask follow it
    plan: int = 0  #: plansource in a PreparedStatement
    plan_text: int = 0  #: query_string in a CachedPlanSource

    def facts(self) -> dict[str, int]:
        """Returns the offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def prepared_statements(executable: Executable) -> PreparedStatements:
    """
    Raises:
        CannotResolve: some code is not as expected; the message names it.
    """
    search = the_function(executable, _SEARCH).vaddr
    table = _hash_table_address(_steps(executable, _FETCH), search)
    distance = table - executable.data_vaddr
    if not 0 < distance < executable.data_size:
        raise CannotResolve(f"{_FETCH} searches no table in the data")
    text = the_function(executable, _TEXT).vaddr
    plan, plan_text = _string_members(_steps(executable, _VIEW), text)
    return PreparedStatements(distance, _last_bucket(_steps(executable, _WALK)), plan, plan_text)


def _hash_table_address(code: list[Step], search: int) -> int:
    """Returns the address of the variable that the first call, of `search`, gets first."""
    holds: dict[str, int] = {}
    for step in code:
        if step.name == "call":
            if step.target == search and _FIRST in holds:
                return holds[_FIRST]
            break
        if not isinstance(step.to, str) or not step.writes(step.to):
            continue
        value = holds.get(step.source, 0) if isinstance(step.source, str) else 0
        loaded = step.loads()
        if loaded is not None and loaded[1].base == "rip":
            value = loaded[1].distance
        holds.pop(step.to, None)
        if value and step.name == "mov":
            holds[step.to] = value
    raise CannotResolve(f"{_FETCH} does not search a table as expected")


def _string_members(code: list[Step], text: int) -> tuple[int, int]:
    """Returns (member of an entry, member of its struct) of the one string passed to `text`."""
    candidates: set[tuple[int, int]] = set()
    members: dict[str, int] = {}
    argument = 0, 0
    for step in code:
        if step.name == "call":
            if step.target == text and all(argument):
                candidates.add(argument)
            members.clear()
            argument = 0, 0
        loaded = step.loads()
        if loaded is None:
            if isinstance(step.to, str) and step.writes(step.to):
                members.pop(step.to, None)
                argument = (0, 0) if step.to == _FIRST else argument
            continue
        register, place = loaded
        if register == _FIRST:
            argument = members.get(place.base, 0), place.distance
        member = place.distance if place.is_member and place.base not in ("rbp", "rsp") else 0
        members[register] = member
    if len(candidates) != 1:
        raise CannotResolve(f"{_VIEW} does not show texts as expected")
    return candidates.pop()


def _last_bucket(code: list[Step]) -> int:
    loaded = [part for step in code if (part := step.loads()) is not None]
    compared = [both for step in code if (both := step.compares()) is not None]
    words = [*loaded, *((register, place) for place, register in compared)]
    members = {place.distance for _, place in loaded if place.is_member}
    far = {
        place.distance
        for register, place in words
        if _is_32_bits(register) and place.is_member and place.distance > _FREE_LISTS
    }
    if len(far) != 1 or not members >= _TABLE_MEMBERS:
        raise CannotResolve(f"{_WALK} does not walk over a table as expected")
    return far.pop()


def _is_32_bits(register: str) -> bool:
    return register.startswith("e") or register.endswith("d")


def _steps(executable: Executable, name: str) -> list[Step]:
    function = the_function(executable, name)
    return list(steps(code_of(executable, function, _CODE_BYTES)[1], function.vaddr))


_DEFINE, _START, _REPORT = "PortalDefineQuery", "ExecutorStart", "pgstat_report_query_id"
_ID_CODE_BYTES = 256
_FIFTH = "r8"


@dataclass(frozen=True)
class QueryIds:
    """Offsets in bytes; 0: unknown."""

    portal_plans: int = 0  #: stmts in a PortalData
    query_id: int = 0  #: queryId in a PlannedStmt

    def facts(self) -> dict[str, int]:
        """Returns the offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def query_ids(executable: Executable) -> QueryIds:
    """
    Raises:
        CannotResolve: there are no queryids, or some code is not as expected; says which.
    """
    report = the_function(executable, _REPORT).vaddr
    plans = _stored_member(_body(executable, _DEFINE))
    return QueryIds(plans, _reported_member(_body(executable, _START), report))


def _body(executable: Executable, name: str) -> list[Step]:
    function = the_function(executable, name)
    return body_steps(code_of(executable, function, _ID_CODE_BYTES)[1], function.vaddr)


def _stored_member(code: list[Step]) -> int:
    """Returns the one member of the first argument that gets the fifth."""
    places = [step.to for step in code if step.name == "mov" and step.source == _FIFTH]
    members = [place for place in places if isinstance(place, Place) and place.base == _FIRST]
    if len(members) != 1 or not members[0].is_member:
        raise CannotResolve(f"{_DEFINE} does not store a portal's plans as expected")
    return members[0].distance


def _reported_member(code: list[Step], report: int) -> int:
    """Returns the member, of the struct at the first argument, that `report` gets first."""
    pointed, member = "", 0
    for step in code:
        if step.name == "call":
            if step.target == report and member:
                return member
            break
        if (loaded := step.loads()) is not None:
            register, place = loaded
            if place.base == _FIRST and place.is_member and register != _FIRST:
                pointed = register
            elif register == _FIRST:
                member = place.distance if place.base == pointed and place.is_member else 0
        elif step.writes(_FIRST):
            member = 0
    raise CannotResolve(f"{_START} does not report a queryid as expected")
