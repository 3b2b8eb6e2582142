# SPDX-License-Identifier: Apache-2.0
"""Apache Cassandra, for shared code."""

from __future__ import annotations

from qjoule.servers.agent import Agent
from qjoule.servers.candidate import Candidate
from qjoule.servers.cassandra.find import cassandra_version, is_cassandra
from qjoule.servers.cassandra.rungs import WITH_AGENT, choose_rung
from qjoule.servers.cassandra.settings import PORT, settings
from qjoule.servers.cassandra.signatures import boundary_cost_ns
from qjoule.servers.jvm.process import ReachedJvm
from qjoule.servers.probing import without_probes
from qjoule.servers.resolution import Resolution
from qjoule.servers.support import AgentSupport, Identified, ServerSupport
from qjoule.servers.types import Server


def _recognise(candidate: Candidate) -> Identified | None:
    if not is_cassandra(candidate):
        return None
    return Identified("cassandra", cassandra_version(candidate))


def _resolve(candidate: Candidate, _version: str) -> Resolution:
    return without_probes(candidate)


def _put_agent(jvm: ReachedJvm, client_tags: bool) -> Agent:
    from qjoule.servers.cassandra.agent import put_agent  # noqa: PLC0415 - few need it

    return put_agent(jvm, client_tags=client_tags)


def _blind_spots(_server: Server) -> tuple[str, ...]:
    return (
        "statements prepared before tracing are shown by their ids; with --credentials FILE, by "
        "the texts in its system.prepared_statements",
    )


SUPPORT = ServerSupport(
    name="cassandra",
    flavours={"cassandra": "Cassandra"},
    runtime="java",
    recognise=_recognise,
    settings=settings,
    configured=(PORT,),
    resolve=_resolve,
    choose_rung=choose_rung,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
    agent=AgentSupport(WITH_AGENT, _put_agent),
)
