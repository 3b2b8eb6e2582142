# SPDX-License-Identifier: Apache-2.0
"""Finds PostgreSQL's functions to attach probes to, the states passed to them, what is read from
its memory, and the cost per query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.function_code import CannotResolve, by_role
from qjoule.servers.postgres.memory import (
    backend_memory,
    conforming_strings,
    read_bounds,
    send_buffer,
    wait_event,
)
from qjoule.servers.postgres.plan_nodes import NODE_FACTS, node_functions
from qjoule.servers.postgres.statements import (
    PreparedStatements,
    QueryIds,
    prepared_statements,
    query_ids,
)
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.resolution import (
    Resolution,
    check_machine,
    file_key,
    probes_of,
    probes_or_why,
    within_bounds,
)
from qjoule.servers.types import major_of


class Role(StrEnum):
    """The registry's `roles`: what a probe reports."""

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


#: C functions have no types in their names; the arguments that are read are equal from 13 to 18
#: (src/include/utils/backend_status.h and portal.h, tcop/pquery.h, access/parallel.h,
#: storage/proc.h).
FUNCTIONS = {
    Role.ACTIVITY: "pgstat_report_activity",
    Role.PORTAL_RUN: "PortalRun",
    Role.FAILED: "PortalErrorCleanup",
}
#: Used in addition to reads of sockets.
READING = {
    Role.EXECUTE: "PortalRun",
    Role.REPLICATION: "exec_replication_command",
    Role.REPORT: "EmitErrorReport",
}
PARALLEL = {
    Role.LAUNCH_WORKERS: "LaunchParallelWorkers",
    Role.JOIN_LEADER: "BecomeLockGroupMember",
}
#: Since 18: src/include/storage/aio_internal.h.
IO = {
    Role.IO_SUBMIT: "pgaio_io_prepare_submit",
    Role.IO_BEGIN: "pgaio_io_reopen",
}
SKIPS = {Role.SKIPS: FUNCTIONS[Role.FAILED]}
IDS = {Role.QUERY_ID: FUNCTIONS[Role.PORTAL_RUN]}
MAJORS = range(13, 19)


@dataclass(frozen=True)
class BackendStates:
    """Values of PostgreSQL's enum BackendState, as `pgstat_report_activity` gets it."""

    idle: int
    running: int
    idle_in_transaction: int
    fastpath: int
    aborted: int

    def facts(self) -> dict[str, int]:
        """Returns the states by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def backend_states(major: int | None) -> BackendStates:
    """Returns the states of a major version; 18 put STATE_STARTING before all others.

    Raises:
        CannotResolve: this version's states are not known.
    """
    if major is None or major not in MAJORS:
        versions = f"{MAJORS[0]} to {MAJORS[-1]}"
        version = "of unknown version" if major is None else str(major)
        raise CannotResolve(f"PostgreSQL {version}: backend states are known for {versions}")
    first = 2 if major >= 18 else 1
    return BackendStates(first, first + 1, first + 2, first + 3, first + 4)


#: Functions that begin and end a query, by role.
boundary_functions = partial(by_role, FUNCTIONS)
#: Functions that show a query in addition to reads of sockets.
reading_functions = partial(by_role, READING)
#: Functions that join a parallel worker to its leader.
parallel_functions = partial(by_role, PARALLEL)
#: The function after which the rest of a pipeline is skipped.
skip_functions = partial(by_role, SKIPS)
#: The function that executes a plan with a queryid.
id_functions = partial(by_role, IDS)


def io_functions(executable: Executable) -> dict[str, Symbol]:
    """Returns functions that join an io worker to the backend it reads for, by role.

    Empty before 18, which has no io workers.

    Raises:
        CannotResolve: see `by_role`; or one of the two is missing.
    """
    if not any(executable.functions(name) for name in IO.values()):
        return {}
    return by_role(IO, executable)


SEND_BUFFER = "send-buffer"
READ_BOUNDS = ("read-at", "read-end")
CONFORMING = "conforming"
WAIT_EVENT = "wait-event"
_UNKNOWN_STATES = BackendStates(0, 0, 0, 0, 0)
_NAME = "postgres"
_SKIPPED = "on the socket mode, executions that it skips after an error in a pipeline are counted"
#: Facts found here, by their names in the registry, and those needed only by the symbol mode.
SYMBOL_FACTS = (
    *_UNKNOWN_STATES.facts(),
    *("client", "portal-start", "statement", "authenticates"),
)
FACTS = (
    *(
        SEND_BUFFER,
        *READ_BOUNDS,
        CONFORMING,
        WAIT_EVENT,
        *PreparedStatements().facts(),
        "application",
    ),
    *QueryIds().facts(),
    *NODE_FACTS,
    *SYMBOL_FACTS,
)


def resolve(candidate: Candidate, version: str) -> Resolution:
    """
    Raises:
        QjouleError: the identity of its file cannot be read.
    """
    executable = candidate.executable
    resolution = Resolution(file_key(executable))
    try:
        buffer, notes = 0, resolution.notes
        try:
            buffer = send_buffer(executable)
        except QjouleError as error:
            notes = (f"errors and rows of its queries are not known: {error}",)
        prepared, without_text = _prepared(executable)
        notes = (*notes, *without_text)
        bounds, skipped = _read_bounds(executable)
        query_ids, no_ids = _query_ids(executable)
        has_ids = bool(query_ids.query_id)
        memory, missing = backend_memory(executable)
        facts = {
            SEND_BUFFER: buffer,
            **dict(zip(READ_BOUNDS, bounds, strict=True)),
            CONFORMING: conforming_strings(executable),
            WAIT_EVENT: wait_event(executable),
            **prepared.facts(),
            **query_ids.facts(),
            **_node_functions(executable),
            **_UNKNOWN_STATES.facts(),
            **memory.facts(),
        }
        resolution = replace(
            resolution, facts=within_bounds(_NAME, facts), notes=notes, symbol_notes=missing
        )
        check_machine(executable)
        parallel, why = probes_or_why(executable, parallel_functions)
        if why:
            notes = (*notes, f"parallel workers count as server background: {why}")
        readers, why = probes_or_why(executable, io_functions)
        if why:
            notes = (*notes, f"io workers count as server background: {why}")
        skips, why = probes_or_why(executable, skip_functions) if any(bounds) else ((), skipped)
        if why:
            notes = (*notes, f"{_SKIPPED}: {why}")
        ids, no_ids = probes_or_why(executable, id_functions) if has_ids else ((), no_ids)
        resolution = replace(
            resolution, parallel=parallel + readers + skips, notes=notes, ids=ids, no_ids=no_ids
        )
        boundary = probes_of(executable, boundary_functions(executable))
        reading, _ = probes_or_why(executable, reading_functions)  # else it takes more probes
        states = backend_states(major_of(version)).facts()
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary + reading, facts={**resolution.facts, **states})


def _prepared(executable: Executable) -> tuple[PreparedStatements, tuple[str, ...]]:
    try:
        return prepared_statements(executable), ()
    except QjouleError as error:
        lacks = "on the socket mode, statements prepared before tracing have no text"
        return PreparedStatements(), (f"{lacks}: {error}",)


def _read_bounds(executable: Executable) -> tuple[tuple[int, int], str]:
    try:
        return read_bounds(executable), ""
    except QjouleError as error:
        return (0, 0), str(error)


def _query_ids(executable: Executable) -> tuple[QueryIds, str]:
    try:
        return query_ids(executable), ""
    except QjouleError as error:
        return QueryIds(), str(error)


def _node_functions(executable: Executable) -> dict[str, int]:
    try:
        return node_functions(executable)
    except QjouleError:  # `record --stacks` then shows functions only
        return dict.fromkeys(NODE_FACTS, 0)


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Returns a query's cost: one probe besides reads, or two on activity and one on a portal."""
    if Role.EXECUTE in costs:
        return costs[Role.EXECUTE].entry_ns
    activity, portal = costs.get(Role.ACTIVITY), costs.get(Role.PORTAL_RUN)
    return (2 * activity.entry_ns if activity else 0) + (portal.entry_ns if portal else 0)
