# SPDX-License-Identifier: Apache-2.0
"""Puts agents into servers of the kinds that have an agent."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from qjoule.errors import QjouleError
from qjoule.servers.jvm.process import Reach
from qjoule.servers.registered import support_of, supported
from qjoule.servers.resolution import Agent
from qjoule.servers.types import Server


def put_agents(
    servers: Iterable[Server],
    reach: Reach,
    pids: Collection[int] = (),
    *,
    client_tags: bool = False,
) -> dict[int, Agent]:
    """Puts an agent into each running server that can have one, or those of `pids`; by process.

    `client_tags`: the agents also report tags that clients send with their requests.

    Raises:
        QjouleError: there is no such server, or one of them cannot have an agent.
    """
    wanted = [
        server
        for server in servers
        if support_of(server.flavour).agent is not None
        and server.running
        and (not pids or set(pids) & set(server.tgids))
    ]
    if not wanted:
        names = (name for one in supported() if one.agent for name in one.flavours.values())
        raise QjouleError(
            f"--agent is for {' and '.join(names)}, and none runs: see 'qjoule doctor'"
        )
    agents: dict[int, Agent] = {}
    try:
        for server in wanted:
            support = support_of(server.flavour).agent
            assert support is not None
            with reach(server.tgids[0], server.exe_id) as jvm:
                agents[jvm.pid] = support.put(jvm, client_tags)
    except BaseException:
        for agent in agents.values():
            agent.close()
        raise
    return agents
