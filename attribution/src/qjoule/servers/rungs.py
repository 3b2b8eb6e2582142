# SPDX-License-Identifier: Apache-2.0
"""What a plan uses of an examined server: its rung, what can be attached to, what is never seen.

A server gets the cheapest rung that is exact for its configuration.
"""

from __future__ import annotations

from dataclasses import replace

from qjoule.contract import Rung
from qjoule.servers import registry
from qjoule.servers.choice import Case, Choice, KernelFacts
from qjoule.servers.registered import support_of
from qjoule.servers.resolution import Resolution
from qjoule.servers.types import NO_PROTOCOL, Server


def resolution_of(server: Server) -> Resolution:
    """The result of its examination, plus what is never seen of such a server."""
    notes = support_of(server.flavour).blind_spots(server)
    if server.flavour == NO_PROTOCOL:  # also a server whose protocol is deliberately not used
        return Resolution(server.exe_id, notes=notes)
    if server.resolution is None:
        return Resolution(server.exe_id, notes=notes, problem="its executable was not examined")
    return replace(server.resolution, notes=(*notes, *server.resolution.notes))


def choose_rung(
    server: Server,
    kernel: KernelFacts,
    symbol_problem: str,
    wanted: Rung | None = None,
    shared_executable: str = "",
    *,
    agent: bool = False,
) -> Choice:
    """Decide for one server.

    Args:
        symbol_problem: why the symbol rung is not possible, empty when it is.
        wanted: the user's choice.
        shared_executable: why another server that runs the same file needs probes in it.
        agent: qjoule's agent has been put into it.
    """
    support = support_of(server.flavour)
    if agent and support.agent is not None:
        return support.agent.choice
    if support.symbol_loops and kernel.early:
        lacks = "bpf_loop() (5.17), or maps for processes without rights (5.19)"
        symbol_problem = symbol_problem or f"the kernel lacks {lacks}"
    case = Case(server, kernel, symbol_problem, wanted, shared_executable)
    no_symbol = case.no_probes
    if Rung.SYMBOL.name.lower() not in registry.server_of(server.flavour).rungs:
        no_symbol = f"{support.flavours[server.flavour]} has none"
        no_symbol += "" if support.agent is None else ", but --agent shows them"
    return replace(support.choose_rung(case), no_symbol=no_symbol)
