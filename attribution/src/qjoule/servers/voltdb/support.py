# SPDX-License-Identifier: Apache-2.0
"""VoltDB: recognising it, its settings, and its attach mode: probes on the function of all its
SQL."""

from __future__ import annotations

from qjoule.contract import AttachMode
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.support import Identified, Running, ServerSupport, Settings
from qjoule.servers.supported import Functions, Mode, Supported
from qjoule.servers.types import Fact, Server
from qjoule.servers.voltdb.find import (
    FACTS,
    FUNCTION,
    VERSIONS,
    boundary_cost_ns,
    client_port,
    is_voltdb,
    resolve,
    voltdb_version,
)


def settings(running: Running) -> Settings:
    """Nothing of its configuration changes how it is traced."""
    return Settings(
        Fact(None, "procedures are seen behind it"),
        Fact(False, "a procedure's SQL stays on the threads of its partitions"),
        first_port=client_port(running.candidate.arguments),
    )


_OTHER_THREADS = "procedures run on other threads than connections"


def choose_attach_mode(case: Case) -> Choice:
    """Connections and procedures have different threads: sockets do not show whose work is done."""
    symbol_problem = case.no_probes
    if case.wanted is not None:
        return as_wanted(case, symbol_problem, _OTHER_THREADS)
    if symbol_problem:
        why = f"CPU time and energy by thread name: {symbol_problem}"
        return Choice(AttachMode.NONE, why, exact=False, by_thread=True)
    why = "one site thread executes a procedure's SQL, all of it through one native function"
    return Choice(AttachMode.SYMBOL, why, f"socket: not possible, {_OTHER_THREADS}")


#: What is less than complete, one line each.
_BLIND_SPOTS = (
    "procedures that execute no SQL, and bulk loads, count as the background of their site thread",
    "after a restart its threads are traced without procedures, until qjoule is started again",
)


def _recognise(candidate: Candidate) -> Identified | None:
    if not is_voltdb(candidate):
        return None
    return Identified("voltdb", voltdb_version(candidate.access))


def _blind_spots(_server: Server) -> tuple[str, ...]:
    return _BLIND_SPOTS


SUPPORT = ServerSupport(
    name="voltdb",
    flavours={"voltdb": "VoltDB"},
    runtime="java",
    recognise=_recognise,
    settings=settings,
    resolve=resolve,
    resolved=FACTS,
    has_library=True,
    choose_attach_mode=choose_attach_mode,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
)


_TESTED = "10.0"

#: Of docs/servers.md.
DOCUMENTED = (
    Supported(
        "voltdb",
        "VoltDB",
        (Mode("all", encryption=None),),
        (_TESTED,),
        (
            Functions(
                f"VoltDB {', '.join(f'{n}x' for n in VERSIONS)} on Java 11 to 20",
                (FUNCTION,),
                f"VoltDB {_TESTED}, Java 17",
            ),
        ),
    ),
)
