"""Servers whose executables have been examined, as discovery hands them to a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess, FileAccess
from qjoule.servers.resolve import resolve
from qjoule.servers.types import Server


def examined(server: Server) -> Server:
    """With what its executable offers, by the version and flavour that it is said to have."""
    file = Candidate(FileAccess(server.exe_path), server.exe_name)
    return replace(server, resolution=resolve(file, server.flavour, server.version))


def candidate(entry: Path, exe_name: str = "/bin/true", root: Path = Path("/")) -> Candidate:
    """A process whose directory in /proc is `entry`."""
    return Candidate(DirectAccess(entry, root), exe_name, int(entry.name))
