# SPDX-License-Identifier: Apache-2.0
"""Which rung a FerretDB gets: its requests are counted."""

from __future__ import annotations

from qjoule.contract import Rung
from qjoule.servers.choice import Case, Choice, as_wanted


def choose_rung(case: Case) -> Choice:
    """Requests are seen. Their CPU time is not, since threads serve other requests in between."""
    server, missing = case.server, case.no_recv
    moves = server.thread_pool.source
    if case.wanted not in (None, Rung.STATISTICAL):
        return as_wanted(case, moves, moves)
    if missing:
        return Choice(Rung.NONE, missing, exact=False)
    why = f"requests are counted and timed; {moves}, so none owns CPU time"
    if server.encryption.value is not False:
        why += "; those with TLS would be counted as loss, not seen"
    return Choice(Rung.STATISTICAL, why, "symbol: FerretDB has none", exact=False)
