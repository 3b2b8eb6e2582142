# SPDX-License-Identifier: Apache-2.0
"""Supports memcached: recognises it, reads its settings, and decides its attach mode. It has no
function to attach probes to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from qjoule.contract import AttachMode
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.elf import Executable
from qjoule.servers.resolution import no_function_of
from qjoule.servers.support import (
    PLAIN,
    TLS,
    UNKNOWN,
    Functions,
    Identified,
    Running,
    ServerSupport,
    Settings,
    Supported,
)
from qjoule.servers.types import Fact

_BANNER = re.compile(rb"\0memcached (1\.\d{1,2}\.\d{1,3})(?:[-_.][\w.]{1,40})?\0")  # `-V` prints it
_OPTION = b"print memcached and libevent license"  # memcached.c, usage()


def identify(executable: Executable) -> Identified | None:
    """Recognises two texts of memcached; one of them has the version."""
    strings = executable.constants()
    if _OPTION not in strings:
        return None
    match = _BANNER.search(strings)
    return Identified("memcached", match[1].decode() if match else "")


#: One-letter options that have a value (memcached -h).
_WITH_VALUE = frozenset("pUsalumcPfnDtRbBIYeoN")
_TLS = ("Z", "enable-ssl")
_UDP = ("U", "udp-port")
_OWN_THREAD = Fact(False, "a connection stays with its worker thread")


def settings(running: Running) -> Settings:
    """Reads the settings from its command line, which memcached does not change.

    No option comes from a file or an environment variable (memcached.c, main()).
    """
    return Settings(encryption(running.candidate), _OWN_THREAD)


def encryption(candidate: Candidate) -> Fact:
    """Returns whether requests may arrive in a form that is not parsed: by TLS or UDP."""
    if not candidate.arguments:
        return Fact(None, "its command line cannot be read")
    for name, value in _options(candidate.arguments[1:]):
        if name in _TLS:
            return Fact(True, "TLS: -Z")
        if name in _UDP and value.strip("0"):
            return Fact(True, "UDP: -U")
    return Fact(False, "neither -Z nor -U")


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (name, value) of each option; the value is empty if there is none."""
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


def choose_attach_mode(case: Case) -> Choice:
    """A connection stays with its worker thread, which executes what it reads."""
    missing = case.no_traffic
    if case.wanted is not None:
        return as_wanted(case, "memcached has none", missing)
    if missing:
        return Choice(AttachMode.NONE, missing, exact=False)
    why = "a worker thread reads and executes a request; all commands of one read are one request"
    encryption = case.server.encryption
    if encryption.value is False:
        return Choice(AttachMode.SOCKET, why, "symbol: memcached has none")
    why += f"; what comes by TLS or UDP is counted as loss, not seen ({encryption.source})"
    return Choice(
        AttachMode.SOCKET, why, "symbol: memcached has none; exact without these", exact=False
    )


SUPPORT = ServerSupport(
    name="memcached",
    flavours={"memcached": "memcached"},
    executables="memcached",
    identify=identify,
    settings=settings,
    resolve=no_function_of("memcached"),
    choose_attach_mode=choose_attach_mode,
)


_TESTED = "1.6.18"

#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "memcached",
        "memcached",
        (PLAIN, TLS, UNKNOWN),
        (_TESTED,),
        (Functions("memcached", (), f"memcached {_TESTED}"),),
    ),
)
