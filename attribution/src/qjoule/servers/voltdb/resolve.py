# SPDX-License-Identifier: Apache-2.0
"""What can be attached to in a VoltDB's native library, and the cost per query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from enum import StrEnum

from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.probing import check_machine, probes_of, within_bounds, without_probes
from qjoule.servers.resolution import Resolution
from qjoule.servers.signatures import the_one
from qjoule.servers.voltdb.find import HeapLayout, heap_layout, native_library


class Role(StrEnum):
    """What a probe reports: `roles` of the registry."""

    BEGIN = "voltdb-begin"  # (JNIEnv *, jobject engine, ...), see bpf/voltdb/symbol.bpf.c
    END = "voltdb-end"  # return of the same function


#: JNI's name of a method (JNI specification, "Resolving Native Method Names") has no types either;
#: its arguments are those of VoltDB 10 (org/voltdb/jni/ExecutionEngine.java).
FUNCTION = "Java_org_voltdb_jni_ExecutionEngine_nativeExecutePlanFragments"


def boundary_functions(library: Executable) -> dict[str, Symbol]:
    """The function that begins and ends a query, by role.

    Raises:
        CannotResolve: it is missing, ambiguous, or has clones that callers may use instead.
    """
    fragments = the_one(library, FUNCTION)
    return {Role.BEGIN: fragments, Role.END: fragments}


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
