# SPDX-License-Identifier: Apache-2.0
"""Which rung a VoltDB gets: probes on the function that all its SQL goes through."""

from __future__ import annotations

from qjoule.contract import Rung
from qjoule.servers.choice import Case, Choice, as_wanted

_OTHER_THREADS = "procedures run on other threads than connections"


def choose_rung(case: Case) -> Choice:
    """Connections and procedures have different threads: sockets do not show whose work is done."""
    symbol_problem = case.no_probes
    if case.wanted is not None:
        return as_wanted(case, symbol_problem, _OTHER_THREADS)
    if symbol_problem:
        why = f"CPU time and energy by thread name: {symbol_problem}"
        return Choice(Rung.NONE, why, exact=False, by_thread=True)
    why = "one site thread executes a procedure's SQL, all of it through one native function"
    return Choice(Rung.SYMBOL, why, f"socket: not possible, {_OTHER_THREADS}")
