# SPDX-License-Identifier: Apache-2.0
"""Reads one run of the kit from its trace: the machine's power, and what each load was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.api import QjouleError
from qjoule.api.attribution import attribute, for_trace
from qjoule.api.model import Attribution, Row
from qjoule.api.traces import Trace
from qjoule_studies.physical import reading
from qjoule_studies.physical.kit.document import Part, Run

_OTHERS = ("queries", "background", "other_processes", "kernel", "tracer")


@dataclass(frozen=True)
class Traced:
    """How a load is found in a trace.

    `fingerprints`: of its statements, the one that counts calls first; None: all statements of its
    server. `server`: the server's kind. `client`: name of the client process.
    """

    server: str
    fingerprints: tuple[str, ...] | None
    client: str


def read_run(
    trace: Trace,
    span_ns: tuple[int, int],
    loads: Sequence[tuple[int, Traced]],
    *,
    number: int,
    calibration: str | None,
) -> tuple[Run, Attribution]:
    """One run. `span_ns`: when its loads began and ended; `loads`: with their positions.

    Powers of loads are means over that span; they run at no other time. Raises `QjouleError` if a
    load is not in the trace.
    """
    begin_ns, end_ns = span_ns
    settled_ns = min(begin_ns + reading.SETTLE_NS, end_ns) if loads else begin_ns
    power_w = reading.mean_power_w(trace, settled_ns, end_ns)
    result = attribute(trace, calibrated=for_trace(trace, calibration, "none"))
    kinds = {one.name or one.kind: one.kind for one in trace.meta.servers}
    dt_ns = max(end_ns - begin_ns, 1)
    parts, taken = [], 0
    for position, wanted in loads:
        queries = [row for row in result.rows if _is_of(row, wanted, kinds)]
        if not queries:
            raise QjouleError(f"a recording has no query of {wanted.server}: see 'qjoule doctor'")
        client = [row for row in result.fixed if row.keys.get("process") == wanted.client]
        parts.append(_part(position, queries, client, dt_ns, wanted))
        taken += sum(row.energy_nj for row in (*queries, *client))
    whole = sum(row.energy_nj for row in (*result.rows, *result.fixed) if row.kind in _OTHERS)
    others_w = max(whole - taken, 0) / dt_ns
    return Run(number, dt_ns * 1e-9, power_w, others_w, tuple(parts)), result


def _is_of(row: Row, wanted: Traced, kinds: dict[str, str]) -> bool:
    if row.kind != "queries" or kinds.get(row.server) != wanted.server:
        return False
    return wanted.fingerprints is None or row.keys.get("fingerprint") in wanted.fingerprints


def _part(
    position: int, queries: Sequence[Row], client: Sequence[Row], dt_ns: int, wanted: Traced
) -> Part:
    rows = [*queries, *client]
    counted = [
        row
        for row in queries
        if wanted.fingerprints is None or row.keys.get("fingerprint") == wanted.fingerprints[0]
    ]
    energy_nj = sum(row.energy_nj for row in rows)
    shared_nj = sum(row.shared_nj or 0 for row in rows)
    low_nj = min(max(sum(row.energy_nj_ci95[0] for row in rows), 0.0), energy_nj)
    high_nj = max(sum(row.energy_nj_ci95[1] for row in rows), energy_nj)
    return Part(
        load=position,
        calls_per_s=sum(row.calls for row in counted) * 1e9 / dt_ns,
        energy_w=energy_nj / dt_ns,
        shared_w=min(shared_nj, energy_nj) / dt_ns,
        low_w=low_nj / dt_ns,
        high_w=high_nj / dt_ns,
        client_w=sum(row.energy_nj for row in client) / dt_ns,
    )
