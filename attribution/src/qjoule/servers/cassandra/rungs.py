# SPDX-License-Identifier: Apache-2.0
"""Which rung a Cassandra gets: its requests are counted, or an agent in its JVM follows them."""

from __future__ import annotations

from qjoule.contract import Rung
from qjoule.servers.choice import Case, Choice, as_wanted

_OWN_STAGES = "a request goes from stage to stage, each with threads of its own"
_NEEDS_AGENT = "agent: exact, and dearer: with --agent, which changes its code while it runs"
#: With qjoule's agent in it.
WITH_AGENT = Choice(
    Rung.AGENT, "as asked for: an agent in its JVM tells which thread works for which request"
)


def choose_rung(case: Case) -> Choice:
    """A request goes through several threads, and nothing outside shows which request they work
    for.
    """
    server, missing = case.server, case.no_recv
    if case.wanted is not None and case.wanted is not Rung.STATISTICAL:
        return as_wanted(case, _OWN_STAGES, _OWN_STAGES)
    if missing:
        why = f"CPU time and energy by stage: requests cannot be counted, {missing}"
        return Choice(Rung.NONE, why, _NEEDS_AGENT, exact=False, by_thread=True)
    why = "requests are counted on its sockets; joules by regression on their counts"
    if server.encryption.value is not False:
        why += f"; encrypted sessions are counted, not seen ({server.encryption.source})"
    return Choice(Rung.STATISTICAL, why, _NEEDS_AGENT, exact=False)
