# SPDX-License-Identifier: Apache-2.0
"""MongoDB's function that probes are attached to, by its mangled name in each version."""

from __future__ import annotations

from enum import StrEnum

from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.signatures import CannotResolve, absent, the_one


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
    present = [name for _, name in SIGNATURES if executable.functions(name)]
    if len(present) > 1:
        raise CannotResolve(f"two signatures of handleRequest: {' and '.join(present)}")
    if not present:
        for prefix in _PREFIXES:
            if strangers := executable.names_with_prefix(prefix)[:1]:
                raise CannotResolve(
                    f"handleRequest has a signature that is not known: {strangers[0]}"
                )
        raise absent("handleRequest of a mongod", executable)
    function = the_one(executable, present[0])
    return {Role.REQUEST: function, Role.DONE: function}
