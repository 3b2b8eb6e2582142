# SPDX-License-Identifier: Apache-2.0
"""Supports FerretDB, which speaks the protocol of MongoDB: recognises it, reads its settings, and
decides its attach mode.

Its executable contains no certain version, and no function to attach probes to.
"""

from __future__ import annotations

from qjoule.contract import AttachMode
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.config_files import shown_value
from qjoule.servers.elf import Executable
from qjoule.servers.resolution import no_function_of
from qjoule.servers.support import (
    PLAIN,
    TLS,
    Functions,
    Identified,
    Mode,
    Running,
    ServerSupport,
    Settings,
    Supported,
)
from qjoule.servers.types import Fact

_MODULE = b"github.com/FerretDB/FerretDB/"  #: the path of its Go packages


def identify(executable: Executable) -> Identified | None:
    return Identified("ferretdb") if _MODULE in executable.constants() else None


_OPTION, _VARIABLE = "--listen-tls", "FERRETDB_LISTEN_TLS"

#: FerretDB is written in Go, whose scheduler may run a connection's work on any thread.
NO_OWN_THREADS = Fact(True, "goroutines go from thread to thread")


def settings(running: Running) -> Settings:
    """Reads the settings from its command line and its environment."""
    return Settings(encryption(running.candidate), NO_OWN_THREADS)


def encryption(candidate: Candidate) -> Fact:
    """Returns whether it listens for TLS."""
    if not candidate.arguments:
        return Fact(None, "its command line cannot be read")
    for argument in candidate.arguments[1:]:
        name, _, value = argument.partition("=")
        if name == _OPTION:
            return Fact(True, f"{_OPTION} {shown_value(value)}".strip())
    if address := candidate.environment.get(_VARIABLE):
        return Fact(True, f"{_VARIABLE}={shown_value(address)}")
    return Fact(False, f"without {_OPTION}")


def choose_attach_mode(case: Case) -> Choice:
    """Requests are seen. Their CPU time is not, since threads serve other requests in between."""
    server, missing = case.server, case.no_recv
    moves = server.thread_pool.source
    if case.wanted not in (None, AttachMode.STATISTICAL):
        return as_wanted(case, moves, moves)
    if missing:
        return Choice(AttachMode.NONE, missing, exact=False)
    why = f"requests are counted and timed; {moves}, so none owns CPU time"
    if server.encryption.value is not False:
        why += "; those with TLS would be counted as loss, not seen"
    return Choice(AttachMode.STATISTICAL, why, "symbol: FerretDB has none", exact=False)


SUPPORT = ServerSupport(
    name="ferretdb",
    flavours={"ferretdb": "FerretDB"},
    system="mongodb",
    executables="ferretdb",
    identify=identify,
    settings=settings,
    resolve=no_function_of("FerretDB"),
    choose_attach_mode=choose_attach_mode,
)


_TESTED = "1.24.2"

#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "ferretdb",
        "FerretDB",
        (
            Mode(PLAIN.title, thread_pool=True),
            Mode(TLS.title, encryption=True, thread_pool=True),
        ),
        (_TESTED,),
        (Functions("FerretDB", (), f"FerretDB {_TESTED}"),),
    ),
)
