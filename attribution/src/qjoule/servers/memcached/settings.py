# SPDX-License-Identifier: Apache-2.0
"""Reads how a memcached is configured, from its command line, which it does not change.

Its options come from no file and no environment variable (memcached.c, main()).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qjoule.servers.candidate import Candidate
from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Fact

#: Options of one letter that have a value (memcached -h).
_WITH_VALUE = frozenset("pUsalumcPfnDtRbBIYeoN")
_TLS = ("Z", "enable-ssl")
_UDP = ("U", "udp-port")
_OWN_THREAD = Fact(False, "a connection stays with its worker thread")


def settings(running: Running) -> Settings:
    """Reads the settings from its command line."""
    return Settings(encryption(running.candidate), _OWN_THREAD)


def encryption(candidate: Candidate) -> Fact:
    """Whether requests may arrive in a form that is not parsed: by TLS or UDP."""
    if not candidate.arguments:
        return Fact(None, "its command line cannot be read")
    for name, value in _options(candidate.arguments[1:]):
        if name in _TLS:
            return Fact(True, "TLS: -Z")
        if name in _UDP and value.strip("0"):
            return Fact(True, "UDP: -U")
    return Fact(False, "neither -Z nor -U")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, value) of each option; the value of one that has none is empty."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return
        if argument.startswith("--"):
            name, is_joined, value = argument[2:].partition("=")
            yield name, value if is_joined or name not in _UDP else next(rest, "")
        elif argument.startswith("-"):
            letters = argument[1:]
            for at, letter in enumerate(letters):
                if letter in _WITH_VALUE:
                    yield letter, letters[at + 1 :] or next(rest, "")
                    break
                yield letter, ""
