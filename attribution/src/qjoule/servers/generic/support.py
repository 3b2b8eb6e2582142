# SPDX-License-Identifier: Apache-2.0
"""Any other process that listens, for shared code."""

from __future__ import annotations

from qjoule.servers.candidate import Candidate
from qjoule.servers.generic.rungs import choose_rung
from qjoule.servers.probing import without_probes
from qjoule.servers.resolution import Resolution
from qjoule.servers.support import Running, ServerSupport, Settings
from qjoule.servers.types import NO_PROTOCOL, Fact, Server

_NO_PROTOCOL = Fact(False, "no protocol is known")


def _settings(_running: Running) -> Settings:
    return Settings(_NO_PROTOCOL, _NO_PROTOCOL)


def _resolve(candidate: Candidate, _version: str) -> Resolution:
    return without_probes(candidate)


def _blind_spots(server: Server) -> tuple[str, ...]:
    return (server.restart.why,)


SUPPORT = ServerSupport(
    name=NO_PROTOCOL,
    flavours={NO_PROTOCOL: "any other process"},
    settings=_settings,
    resolve=_resolve,
    choose_rung=choose_rung,
    blind_spots=_blind_spots,
)
