# SPDX-License-Identifier: Apache-2.0
"""Which rung a memcached gets: its sockets."""

from __future__ import annotations

from qjoule.contract import Rung
from qjoule.servers.choice import Case, Choice, as_wanted


def choose_rung(case: Case) -> Choice:
    """A connection stays with its worker thread, which executes what it reads."""
    missing = case.no_traffic
    if case.wanted is not None:
        return as_wanted(case, "memcached has none", missing)
    if missing:
        return Choice(Rung.NONE, missing, exact=False)
    why = "a worker thread reads and executes a request; all commands of one read are one request"
    encryption = case.server.encryption
    if encryption.value is False:
        return Choice(Rung.SOCKET, why, "symbol: memcached has none")
    why += f"; what comes by TLS or UDP is counted as loss, not seen ({encryption.source})"
    return Choice(Rung.SOCKET, why, "symbol: memcached has none; exact without these", exact=False)
