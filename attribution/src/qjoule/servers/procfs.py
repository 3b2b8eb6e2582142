# SPDX-License-Identifier: Apache-2.0
"""A process as listed: cheap to get, and only numbers are parsed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qjoule.servers.owner import Owner, owner_of


@dataclass(frozen=True)
class Process:
    """A process with an executable that can be seen."""

    pid: int
    parent: int
    directory: Path  #: /proc/PID
    exe_name: str  #: as the process sees it, without " (deleted)"
    deleted: bool
    exe_id: tuple[int, int]  #: (device, inode)
    uid: int = 0  #: its user
    control_groups: str = ""  #: its /proc/PID/cgroup

    @property
    def base_name(self) -> str:
        return self.exe_name.rpartition("/")[2]

    @property
    def owner(self) -> Owner:
        return owner_of(self.uid, self.control_groups)

    @property
    def root(self) -> Path:
        return self.directory / "root"
