# SPDX-License-Identifier: Apache-2.0
"""Any other process that listens, for shared code."""

from __future__ import annotations

from qjoule.contract import AttachMode
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice
from qjoule.servers.resolution import Resolution, without_probes
from qjoule.servers.support import Running, ServerSupport, Settings
from qjoule.servers.supported import Mode, Supported
from qjoule.servers.types import NO_PROTOCOL, Fact, Server

_BY_THREAD = Choice(
    AttachMode.NONE,
    "where its queries begin is not known: CPU time and energy by thread name",
    by_thread=True,
)


def choose_attach_mode(_case: Case) -> Choice:
    """The same for any wish of the user."""
    return _BY_THREAD


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
    choose_attach_mode=choose_attach_mode,
    blind_spots=_blind_spots,
)


#: Of docs/servers.md.
DOCUMENTED = (Supported(NO_PROTOCOL, "any other process", (Mode("all"),)),)
