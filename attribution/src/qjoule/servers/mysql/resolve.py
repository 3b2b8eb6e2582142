# SPDX-License-Identifier: Apache-2.0
"""What can be attached to in MySQL's or MariaDB's executable, and the cost per query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.mysql.memory import SessionMemory, session_memory
from qjoule.servers.mysql.signatures import (
    Role,
    boundary_functions,
    child_functions,
    name_functions,
)
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.probing import (
    check_machine,
    file_key,
    probes_of,
    probes_or_why,
    within_bounds,
)
from qjoule.servers.resolution import Resolution

_BEGINS = (Role.BEGIN_COMMAND_FIRST, Role.BEGIN_THD_FIRST)
#: Facts found here, by their names in the registry.
FACTS = tuple(SessionMemory().facts())
#: The server keeps connection attributes in its performance schema alone.
_NO_APPLICATION = (
    "sessions opened before tracing have no application (program_name) without --credentials FILE"
)
_NO_APPLICATIONS = (
    "on the symbol rung, no session has an application (program_name) without --credentials FILE"
)


def resolve(candidate: Candidate, _version: str) -> Resolution:
    """
    Raises:
        QjouleError: not even the identity of its file can be read.
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
    """Cost of a query: of a probe on the beginning, and of one on the end if there is one."""
    if Role.END in costs:
        return costs[Role.END].both_ns
    return next((costs[role].entry_ns for role in _BEGINS if role in costs), 0)
