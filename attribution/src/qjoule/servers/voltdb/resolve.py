# SPDX-License-Identifier: Apache-2.0
"""What can be attached to in a VoltDB's native library, and the cost per query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import open_executable
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.probing import check_machine, probes_of, within_bounds, without_probes
from qjoule.servers.resolution import Resolution
from qjoule.servers.voltdb.find import HeapLayout, heap_layout, native_library
from qjoule.servers.voltdb.signatures import Role, boundary_functions

#: What is found, by its names in the registry.
FACTS = tuple(field.name.replace("_", "-") for field in fields(HeapLayout))


def resolve(candidate: Candidate, version: str) -> Resolution:
    """Finds the native function and the heap's layout.

    Raises:
        QjouleError: there is no library, it lacks the functions, or the JVM does not reveal enough.
    """
    access = candidate.access
    mapping = native_library(access, version)
    file = access.mapped(mapping.base, mapping.end)
    library = open_executable(file)
    check_machine(library)
    return replace(
        without_probes(candidate),
        boundary=probes_of(library, boundary_functions(library)),
        facts=within_bounds("voltdb", heap_layout(access).facts()),
        file=library.identity.key,
        library=file.path,
        handle=file.handle,
    )


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Cost of a query."""
    return costs[Role.END].both_ns if Role.END in costs else 0
