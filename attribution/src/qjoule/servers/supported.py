# SPDX-License-Identifier: Apache-2.0
"""The servers that qjoule knows: their versions in the tests, their modes, their functions.

Made for docs/servers.md, of what each server's `support.py` has as `DOCUMENTED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qjoule.contract import AttachMode
from qjoule.servers.choice import Choice, KernelFacts
from qjoule.servers.registered import choose_attach_mode, module_of, supported
from qjoule.servers.types import Fact, Server


@dataclass(frozen=True)
class Mode:
    """A configuration of a server that decides how it is traced."""

    title: str
    encryption: bool | None = False  #: may sessions be encrypted? None: not known
    thread_pool: bool | None = False  #: may a session change its thread?
    wanted: AttachMode | None = None  #: an attach mode that the user has to ask for

    def choice(self, flavour: str, kernel: KernelFacts, symbol_problem: str) -> Choice:
        """How qjoule traces such a server on such a kernel (see `choose_attach_mode`)."""
        server = Server(
            id=0,
            flavour=flavour,
            version="",
            exe_path=Path("/"),
            exe_name="/",
            exe_id=(0, 0),
            tgids=(),
            ports=(),
            sockets=(),
            encryption=Fact(self.encryption, ""),
            thread_pool=Fact(self.thread_pool, ""),
        )
        if self.wanted is AttachMode.AGENT:
            return choose_attach_mode(server, kernel, symbol_problem, agent=True)
        return choose_attach_mode(server, kernel, symbol_problem, self.wanted)


@dataclass(frozen=True)
class Functions:
    """The functions that the symbol mode looks for, in some versions."""

    versions: str
    names: tuple[str, ...]  #: empty: there is no symbol mode
    tested: str = "no"  #: versions that the tests run with these


@dataclass(frozen=True)
class Supported:
    flavour: str
    name: str
    modes: tuple[Mode, ...]
    tested: tuple[str, ...] = ()  #: run for real by the tests, as discovery reads versions
    functions: tuple[Functions, ...] = ()


PLAIN = Mode("plain text")
TLS = Mode("TLS possible", encryption=True)
UNKNOWN = Mode("configuration unknown", encryption=None, thread_pool=None)
#: For a server with a thread per connection, or a pool.
THREAD_MODES = (
    PLAIN,
    TLS,
    Mode("thread pool", thread_pool=True),
    Mode("thread pool, TLS possible", encryption=True, thread_pool=True),
    UNKNOWN,
)


@cache
def documented() -> tuple[Supported, ...]:
    """What all servers' folders have for docs/servers.md, in the registry's order."""
    return tuple(row for support in supported() for row in module_of(support.name).DOCUMENTED)
