# SPDX-License-Identifier: Apache-2.0
"""Which rung a server gets: the cheapest that is exact for its configuration."""

from __future__ import annotations

from dataclasses import replace

from qjoule.contract import Rung
from qjoule.servers import registry
from qjoule.servers.choice import Case, Choice
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.registered import support_of
from qjoule.servers.types import Server


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
