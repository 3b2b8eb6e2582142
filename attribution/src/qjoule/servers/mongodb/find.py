# SPDX-License-Identifier: Apache-2.0
"""What can be attached to in a mongod, and the cost per query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.function_code import the_only
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.resolution import Resolution, check_machine, file_key, probes_of


class Role(StrEnum):
    """What a probe reports: `roles` of the registry."""

    REQUEST = "mongodb-request"  # (result *, this, OperationContext *, const Message &)
    DONE = "mongodb-done"  # return of the same function


_HANDLE = "13handleRequestEPNS_16OperationContextERKNS_7MessageE"

#: src/mongo/db/service_entry_point_mongod.h, later service_entry_point_shard_role.h. The result,
#: DbResponse or Future<DbResponse>, is not part of the name; both are returned in memory. After 8.0
#: the function also gets the time when the request arrived.
SIGNATURES = (
    ("MongoDB 3.6 to 7", f"_ZN5mongo23ServiceEntryPointMongod{_HANDLE}"),
    ("MongoDB 8.0", f"_ZN5mongo26ServiceEntryPointShardRole{_HANDLE}"),
    ("MongoDB after 8.0", f"_ZN5mongo26ServiceEntryPointShardRole{_HANDLE}NS_6Date_tE"),
)
_PREFIXES = (
    "_ZN5mongo23ServiceEntryPointMongod13handleRequest",
    "_ZN5mongo26ServiceEntryPointShardRole13handleRequest",
)


def boundary_functions(executable: Executable) -> dict[str, Symbol]:
    """The function that begins and ends a query, by role.

    Raises:
        CannotResolve: it is missing, ambiguous, or has clones that callers may use instead.
    """
    function = the_only(
        executable,
        "handleRequest",
        [name for _, name in SIGNATURES],
        prefixes=_PREFIXES,
        missing="handleRequest of a mongod",
    )
    return {Role.REQUEST: function, Role.DONE: function}


def resolve(candidate: Candidate, _version: str) -> Resolution:
    """
    Raises:
        QjouleError: not even the identity of its file can be read.
    """
    executable = candidate.executable
    resolution = Resolution(file_key(executable))
    try:
        check_machine(executable)
        boundary = probes_of(executable, boundary_functions(executable))
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary)


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Cost of a query."""
    return costs[Role.DONE].both_ns if Role.DONE in costs else 0
