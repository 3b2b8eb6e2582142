# SPDX-License-Identifier: Apache-2.0
"""VoltDB's native function that probes are attached to."""

from __future__ import annotations

from enum import StrEnum

from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.signatures import the_one


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
