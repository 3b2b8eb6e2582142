# SPDX-License-Identifier: Apache-2.0
"""Finds where a PostgreSQL backend keeps the queryid of what it executes, for
bpf/postgres/ids.bpf.c.

`PortalDefineQuery(portal, ..., stmts, cplan)` stores its fifth argument into the portal
(src/backend/utils/mmgr/portalmem.c). `ExecutorStart(queryDesc)` hands the queryId of the
PlannedStmt that its argument points to, to `pgstat_report_query_id()` (src/backend/executor/
execMain.c, from 14 on). All three are exported.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from qjoule.servers.code_steps import Place, Step, body_steps
from qjoule.servers.elf import Executable
from qjoule.servers.function_code import code_of, the_function
from qjoule.servers.signatures import CannotResolve

_DEFINE, _START, _REPORT = "PortalDefineQuery", "ExecutorStart", "pgstat_report_query_id"
_CODE_BYTES = 256
_FIRST, _FIFTH = "rdi", "r8"


@dataclass(frozen=True)
class QueryIds:
    """Offsets in bytes; 0: unknown."""

    portal_plans: int = 0  #: of stmts in a PortalData
    query_id: int = 0  #: of queryId in a PlannedStmt

    def facts(self) -> dict[str, int]:
        """The offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def query_ids(executable: Executable) -> QueryIds:
    """
    Raises:
        CannotResolve: it has no queryids, or some code is not as expected; the message says which.
    """
    report = the_function(executable, _REPORT).vaddr
    plans = _stored(_body(executable, _DEFINE))
    return QueryIds(plans, _reported(_body(executable, _START), report))


def _body(executable: Executable, name: str) -> list[Step]:
    function = the_function(executable, name)
    return body_steps(code_of(executable, function, _CODE_BYTES)[1], function.vaddr)


def _stored(code: list[Step]) -> int:
    """The one member of the first argument that the fifth is stored into."""
    places = [step.to for step in code if step.name == "mov" and step.source == _FIFTH]
    found = [one for one in places if isinstance(one, Place) and one.base == _FIRST]
    if len(found) != 1 or not found[0].is_member:
        raise CannotResolve(f"{_DEFINE} does not store a portal's plans as expected")
    return found[0].distance


def _reported(code: list[Step], report: int) -> int:
    """The member of what the first argument points to that is the first argument of `report`."""
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
