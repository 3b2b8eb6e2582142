"""What a FerretDB is configured to do: its command line, then its environment."""

from __future__ import annotations

from qjoule.servers.procfs import Process
from qjoule.servers.types import Fact

_OPTION, _VARIABLE = "--listen-tls", "FERRETDB_LISTEN_TLS"

#: FerretDB is written in Go, whose scheduler runs a connection's work on any of its threads.
NO_OWN_THREADS = Fact(True, "goroutines go from thread to thread")


def ferretdb_encryption(process: Process) -> Fact:
    """Whether it listens for TLS."""
    if not process.arguments:
        return Fact(None, "its command line cannot be read")
    for argument in process.arguments[1:]:
        name, _, value = argument.partition("=")
        if name == _OPTION:
            return Fact(True, f"{_OPTION} {value}".strip())
    if address := process.environment.get(_VARIABLE):
        return Fact(True, f"{_VARIABLE}={address}")
    return Fact(False, f"without {_OPTION}")
