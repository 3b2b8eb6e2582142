# SPDX-License-Identifier: Apache-2.0
"""Which rung a Redis gets: its sockets, or counting where several threads read."""

from __future__ import annotations

from qjoule.contract import Rung
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.types import Server


def choose_rung(case: Case) -> Choice:
    """A command takes less time than a probe would: so it is the sockets or nothing.

    With reading io-threads, requests are seen, but the main thread executes what several threads
    have read without a system call in between. TLS sessions are recognised and counted when they
    arrive. So are requests read by io-threads that could not be detected in advance.
    """
    server, wanted, missing = case.server, case.wanted, case.no_traffic
    threads = server.thread_pool
    if wanted is not None and not (threads.value and wanted is Rung.STATISTICAL):
        others = threads.source if threads.value else ""
        return as_wanted(case, "Redis has none", missing or others)
    if missing:
        return Choice(Rung.NONE, missing, exact=False)
    if threads.value:
        why = f"requests are counted and timed; {threads.source}, so none owns CPU time"
        if server.encryption.value is not False:
            why += "; those with TLS would be counted as loss, not seen"
        return Choice(Rung.STATISTICAL, why, "symbol: Redis has none", exact=False)
    why = "one thread executes all commands; those of one read are one request"
    doubts = []
    if server.encryption.value is not False:
        doubts.append(f"with TLS ({server.encryption.source})")
    if threads.value is None:
        doubts.append(f"that io-threads read ({threads.source})")
    if doubts:
        why += f"; requests {' or '.join(doubts)} would be counted as loss, not seen"
    other = "symbol: Redis has none" + ("; exact without these" if doubts else "")
    return Choice(Rung.SOCKET, why, other, exact=not doubts)


def blind_spots(_server: Server) -> tuple[str, ...]:
    """What is never seen of it."""
    return (
        "with --client-tags, names that connections got before tracing (CLIENT SETNAME) are known "
        "only with --credentials FILE too, and not on unix sockets",
    )
