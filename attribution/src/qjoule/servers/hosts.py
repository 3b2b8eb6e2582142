# SPDX-License-Identifier: Apache-2.0
"""Lists processes and executables, and has candidates examined: with this process's own rights
(`DirectHost`), or by another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from qjoule.servers.access import FileIdentity
from qjoule.servers.direct_access import (
    DirectAccess,
    FileAccess,
    installed_files,
    is_process,
    port_range,
    processes,
)
from qjoule.servers.examine import examine
from qjoule.servers.processes import Process, SocketTables
from qjoule.servers.types import (
    Examined,
    Facts,
)


@dataclass(frozen=True)
class Listed:
    """The processes whose executables can be seen, and the number of other processes."""

    processes: tuple[Process, ...]
    hidden: int = 0


class Host(Protocol):
    """Lists processes and executables; has candidates examined, here or in another process."""

    def processes(self) -> Listed:
        """Lists the current processes."""

    def installed(self, patterns: Sequence[str]) -> list[tuple[Path, FileIdentity]]:
        """Returns executables whose paths match, relative to the root directory."""

    def port_range(self) -> tuple[int, int]:
        """Returns the range of ports that the kernel assigns to clients."""

    def has(self, pid: int) -> bool:
        """Returns true if the process exists, even if its executable cannot be seen."""

    def examine(self, facts: Facts) -> Examined:
        """Examines process `facts.pid`; if that is 0, the file `facts.exe_name`. Never raises."""

    def examine_all(self, every: Sequence[Facts]) -> list[Examined]:
        """Calls `examine` for each, in this order; several at a time where that is possible."""


@dataclass
class DirectHost:
    """Accesses files with this process's rights. Tests have other directories `proc`, `root`."""

    proc: Path = Path("/proc")
    root: Path = Path("/")
    _tables: SocketTables | None = field(default=None, repr=False)

    def processes(self) -> Listed:
        self._tables = None  # other processes may have opened sockets since
        hidden: list[int] = []
        listed = tuple(processes(self.proc, hidden))
        return Listed(listed, len(hidden))

    def installed(self, patterns: Sequence[str]) -> list[tuple[Path, FileIdentity]]:
        return installed_files(self.root, patterns)

    def port_range(self) -> tuple[int, int]:
        return port_range(self.proc)

    def has(self, pid: int) -> bool:
        return is_process(self.proc, pid)

    def examine(self, facts: Facts) -> Examined:
        if not facts.pid:
            return examine(FileAccess(Path(facts.exe_name)), facts)
        if self._tables is None:
            self._tables = SocketTables(facts.port_range)
        access = DirectAccess(self.proc / str(facts.pid), self.root)
        return examine(access, facts, self._tables)

    def examine_all(self, every: Sequence[Facts]) -> list[Examined]:
        return [self.examine(facts) for facts in every]
