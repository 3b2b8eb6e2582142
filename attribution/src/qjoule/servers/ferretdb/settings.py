# SPDX-License-Identifier: Apache-2.0
"""Reads how a FerretDB is configured: its command line, then its environment."""

from __future__ import annotations

from qjoule.servers.candidate import Candidate
from qjoule.servers.config_text import shown_value
from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Fact

_OPTION, _VARIABLE = "--listen-tls", "FERRETDB_LISTEN_TLS"

#: FerretDB is written in Go, whose scheduler runs a connection's work on any of its threads.
NO_OWN_THREADS = Fact(True, "goroutines go from thread to thread")


def settings(running: Running) -> Settings:
    """Reads the settings from its command line and its environment."""
    return Settings(encryption(running.candidate), NO_OWN_THREADS)


def encryption(candidate: Candidate) -> Fact:
    """Whether it listens for TLS."""
    if not candidate.arguments:
        return Fact(None, "its command line cannot be read")
    for argument in candidate.arguments[1:]:
        name, _, value = argument.partition("=")
        if name == _OPTION:
            return Fact(True, f"{_OPTION} {shown_value(value)}".strip())
    if address := candidate.environment.get(_VARIABLE):
        return Fact(True, f"{_VARIABLE}={shown_value(address)}")
    return Fact(False, f"without {_OPTION}")
