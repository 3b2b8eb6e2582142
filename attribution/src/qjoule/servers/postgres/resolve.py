# SPDX-License-Identifier: Apache-2.0
"""What can be attached to in a PostgreSQL, what is read from its memory, and the cost per query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable
from qjoule.servers.postgres.memory import backend_memory, conforming_strings
from qjoule.servers.postgres.prepared import PreparedStatements, prepared_statements
from qjoule.servers.postgres.query_ids import QueryIds, query_ids
from qjoule.servers.postgres.replies import read_bounds, send_buffer
from qjoule.servers.postgres.signatures import (
    BackendStates,
    Role,
    backend_states,
    boundary_functions,
    id_functions,
    io_functions,
    parallel_functions,
    reading_functions,
    skip_functions,
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
from qjoule.servers.types import major_of

SEND_BUFFER = "send-buffer"
READ_BOUNDS = ("read-at", "read-end")
CONFORMING = "conforming"
_UNKNOWN_STATES = BackendStates(0, 0, 0, 0, 0)
_NAME = "postgres"
_SKIPPED = "on the socket rung, executions that it skips after an error in a pipeline are counted"
#: Facts found here, by their names in the registry, and those that only the symbol rung needs.
SYMBOL_FACTS = (
    *_UNKNOWN_STATES.facts(),
    *("client", "portal-start", "statement", "authenticates"),
)
FACTS = (
    *(SEND_BUFFER, *READ_BOUNDS, CONFORMING, *PreparedStatements().facts(), "application"),
    *QueryIds().facts(),
    *SYMBOL_FACTS,
)


def resolve(candidate: Candidate, version: str) -> Resolution:
    """
    Raises:
        QjouleError: not even the identity of its file can be read.
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
            **prepared.facts(),
            **query_ids.facts(),
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
        reading, _ = probes_or_why(executable, reading_functions)  # else there are more probes
        states = backend_states(major_of(version)).facts()
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary + reading, facts={**resolution.facts, **states})


def _prepared(executable: Executable) -> tuple[PreparedStatements, tuple[str, ...]]:
    try:
        return prepared_statements(executable), ()
    except QjouleError as error:
        lacks = "on the socket rung, statements prepared before tracing have no text"
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


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Cost of a query: one probe beside reads; else activity is reported twice, and it runs."""
    if Role.EXECUTE in costs:
        return costs[Role.EXECUTE].entry_ns
    activity, portal = costs.get(Role.ACTIVITY), costs.get(Role.PORTAL_RUN)
    return (2 * activity.entry_ns if activity else 0) + (portal.entry_ns if portal else 0)
