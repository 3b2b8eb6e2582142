# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL's functions that probes are attached to, and the states passed to them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.signatures import CannotResolve, the_one


class Role(StrEnum):
    """What a probe reports: `roles` of the registry."""

    ACTIVITY = "postgres-activity"  # (BackendState, const char *text)
    PORTAL_RUN = "postgres-portal-run"  # (Portal, long count, bool isTopLevel, ...)
    EXECUTE = "postgres-execute"  # the same function, beside reads of sockets
    REPLICATION = "postgres-replication"  # (const char *text), on a replica's connection
    REPORT = "postgres-report"  # (); called for errors, warnings and notices
    FAILED = "postgres-failed"  # (); called only when a client's statement has failed
    SKIPS = "postgres-skips"  # as FAILED, on sockets
    LAUNCH_WORKERS = "postgres-launch-workers"  # (ParallelContext *), in the leader
    JOIN_LEADER = "postgres-join-leader"  # (PGPROC *leader, int pid), in the worker
    IO_SUBMIT = "postgres-io-submit"  # (PgAioHandle *), in the backend
    IO_BEGIN = "postgres-io-begin"  # (PgAioHandle *), in the io worker
    QUERY_ID = "postgres-query-id"  # as PORTAL_RUN, also on sockets


#: C functions have no types in their names; the arguments read are the same from 13 to 18
#: (src/include/utils/backend_status.h and portal.h, tcop/pquery.h, access/parallel.h,
#: storage/proc.h).
FUNCTIONS = {
    Role.ACTIVITY: "pgstat_report_activity",
    Role.PORTAL_RUN: "PortalRun",
    Role.FAILED: "PortalErrorCleanup",
}
#: Beside reads of sockets.
READING = {
    Role.EXECUTE: "PortalRun",
    Role.REPLICATION: "exec_replication_command",
    Role.REPORT: "EmitErrorReport",
}
PARALLEL = {
    Role.LAUNCH_WORKERS: "LaunchParallelWorkers",
    Role.JOIN_LEADER: "BecomeLockGroupMember",
}
#: From 18 on: src/include/storage/aio_internal.h.
IO = {
    Role.IO_SUBMIT: "pgaio_io_prepare_submit",
    Role.IO_BEGIN: "pgaio_io_reopen",
}
SKIPS = {Role.SKIPS: FUNCTIONS[Role.FAILED]}
IDS = {Role.QUERY_ID: FUNCTIONS[Role.PORTAL_RUN]}
MAJORS = range(13, 19)


@dataclass(frozen=True)
class BackendStates:
    """PostgreSQL's enum BackendState, as `pgstat_report_activity` gets it."""

    idle: int
    running: int
    idle_in_transaction: int
    fastpath: int
    aborted: int

    def facts(self) -> dict[str, int]:
        """By their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def backend_states(major: int | None) -> BackendStates:
    """The states of a major version; 18 put STATE_STARTING before all others.

    Raises:
        CannotResolve: this version's states are not known.
    """
    if major is None or major not in MAJORS:
        known = f"{MAJORS[0]} to {MAJORS[-1]}"
        version = "of unknown version" if major is None else str(major)
        raise CannotResolve(f"PostgreSQL {version}: backend states are known for {known}")
    first = 2 if major >= 18 else 1
    return BackendStates(first, first + 1, first + 2, first + 3, first + 4)


def boundary_functions(executable: Executable) -> dict[str, Symbol]:
    """The functions that begin and end a query, by role.

    Raises:
        CannotResolve: one is missing, ambiguous, or has clones that callers may use instead.
    """
    return {role: the_one(executable, name) for role, name in FUNCTIONS.items()}


def reading_functions(executable: Executable) -> dict[str, Symbol]:
    """The functions that show a query beside reads of sockets, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    return {role: the_one(executable, name) for role, name in READING.items()}


def parallel_functions(executable: Executable) -> dict[str, Symbol]:
    """PostgreSQL's functions that join a parallel worker to its leader, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    return {role: the_one(executable, name) for role, name in PARALLEL.items()}


def skip_functions(executable: Executable) -> dict[str, Symbol]:
    """PostgreSQL's function after which it skips the rest of a pipeline, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    return {role: the_one(executable, name) for role, name in SKIPS.items()}


def id_functions(executable: Executable) -> dict[str, Symbol]:
    """PostgreSQL's function that executes what has a queryid, by role.

    Raises:
        CannotResolve: as `boundary_functions`.
    """
    return {role: the_one(executable, name) for role, name in IDS.items()}


def io_functions(executable: Executable) -> dict[str, Symbol]:
    """PostgreSQL's functions that join an io worker to the backend it reads for, by role.

    None before 18, which has no io workers.

    Raises:
        CannotResolve: as `boundary_functions`, or one of the two is missing.
    """
    if not any(executable.functions(name) for name in IO.values()):
        return {}
    return {role: the_one(executable, name) for role, name in IO.items()}
