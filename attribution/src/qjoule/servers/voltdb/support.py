# SPDX-License-Identifier: Apache-2.0
"""VoltDB, for shared code."""

from __future__ import annotations

from qjoule.servers.candidate import Candidate
from qjoule.servers.support import Identified, ServerSupport
from qjoule.servers.types import Server
from qjoule.servers.voltdb.find import is_voltdb, voltdb_version
from qjoule.servers.voltdb.resolve import FACTS, boundary_cost_ns, resolve
from qjoule.servers.voltdb.rungs import choose_rung
from qjoule.servers.voltdb.settings import settings

#: What is less than complete, one line each.
_BLIND_SPOTS = (
    "procedures that execute no SQL, and bulk loads, count as the background of their site thread",
    "after a restart its threads are traced without procedures, until qjoule is started again",
)


def _recognise(candidate: Candidate) -> Identified | None:
    if not is_voltdb(candidate):
        return None
    return Identified("voltdb", voltdb_version(candidate.access))


def _blind_spots(_server: Server) -> tuple[str, ...]:
    return _BLIND_SPOTS


SUPPORT = ServerSupport(
    name="voltdb",
    flavours={"voltdb": "VoltDB"},
    runtime="java",
    recognise=_recognise,
    settings=settings,
    resolve=resolve,
    resolved=FACTS,
    has_library=True,
    choose_rung=choose_rung,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
)
