# SPDX-License-Identifier: Apache-2.0
"""Supports Apache Cassandra."""

from __future__ import annotations

from qjoule.contract import AttachMode
from qjoule.servers.candidate import Candidate
from qjoule.servers.cassandra.find import (
    boundary_cost_ns,
    cassandra_version,
    configuration,
    is_cassandra,
)
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.jvm.process import ReachedJvm
from qjoule.servers.resolution import Agent, without_probes
from qjoule.servers.support import (
    PLAIN,
    TLS,
    UNKNOWN,
    AgentSupport,
    Functions,
    Identified,
    Mode,
    Running,
    ServerSupport,
    Settings,
    Supported,
)
from qjoule.servers.types import Fact, Server

PORT = "port"


def settings(running: Running) -> Settings:
    """Reads the settings from its cassandra.yaml."""
    configured = configuration(running.candidate)
    return Settings(
        configured.encryption,
        Fact(True, "its stages have threads of their own"),
        first_port=configured.port,
        facts={PORT: configured.port},
    )


_OWN_STAGES = "a request goes from stage to stage, each with threads of its own"
_NEEDS_AGENT = "agent: exact, and dearer: with --agent, which changes its code while it runs"
#: For a server with qjoule's agent.
WITH_AGENT = Choice(
    AttachMode.AGENT, "as asked for: an agent in its JVM tells which thread works for which request"
)


def choose_attach_mode(case: Case) -> Choice:
    """The socket mode is impossible: a request passes several threads, and nothing outside shows
    which request they work for."""
    server, missing = case.server, case.no_recv
    if case.wanted is not None and case.wanted is not AttachMode.STATISTICAL:
        return as_wanted(case, _OWN_STAGES, _OWN_STAGES)
    if missing:
        why = f"CPU time and energy by stage: requests cannot be counted, {missing}"
        return Choice(AttachMode.NONE, why, _NEEDS_AGENT, exact=False, by_thread=True)
    why = "requests are counted on its sockets; joules by regression on their counts"
    if server.encryption.value is not False:
        why += f"; encrypted sessions are counted, not seen ({server.encryption.source})"
    return Choice(AttachMode.STATISTICAL, why, _NEEDS_AGENT, exact=False)


def _recognise(candidate: Candidate) -> Identified | None:
    if not is_cassandra(candidate):
        return None
    return Identified("cassandra", cassandra_version(candidate))


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
    resolve=without_probes,
    choose_attach_mode=choose_attach_mode,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
    agent=AgentSupport(WITH_AGENT, _put_agent),
)


_TESTED = "5.0.9"

#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "cassandra",
        "Cassandra",
        (PLAIN, TLS, UNKNOWN, Mode("any, with `--agent`", None, None, AttachMode.AGENT)),
        (_TESTED,),
        (Functions("Cassandra", (), f"Cassandra {_TESTED}"),),
    ),
)
