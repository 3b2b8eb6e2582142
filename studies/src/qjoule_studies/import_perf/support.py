# SPDX-License-Identifier: Apache-2.0
"""The `SUPPORT` of a server's module: how to set and read its probes when importing from perf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from qjoule.api.servers import PlannedServer
from qjoule_studies.import_perf.arguments import Arguments
from qjoule_studies.import_perf.lives import Lives, Thread


@dataclass(frozen=True)
class Hook:
    """A uprobe that is wanted: its event's name (`FAMILY_WORD`), and what it reads."""

    event: str
    arguments: str = ""
    is_return: bool = False


class Rules(Protocol):
    """Turns hits of one server's probes into the lives of queries."""

    def take(
        self, event: bytes, thread: Thread, at: tuple[int, int, int], arguments: Arguments
    ) -> None:
        """One hit, `at` (time, CPU, thread). Raises `BadArguments`."""


@dataclass(frozen=True)
class PerfSupport:
    """How a server's probes are set and read."""

    families: tuple[str, ...]  #: what stands before the `_` in the names of its events
    hooks: Callable[[PlannedServer], dict[str, Hook]]  #: by role
    rules: Callable[[Lives], Rules]
    flavour: Callable[[bytes], str]  #: by the name of the main process
    by_process: bool = False  #: each client has a process, which belongs to its parent
    missing: tuple[str, ...] = ()  #: what an import of it cannot say
