# SPDX-License-Identifier: Apache-2.0
"""Servers whose executables have been examined, in the form that discovery gives to a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess, FileAccess
from qjoule.servers.examine import resolve
from qjoule.servers.listening import Listening
from qjoule.servers.registered import support_of
from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Server


def examined(server: Server) -> Server:
    """With what its executable offers for the given version and flavour."""
    file = Candidate(FileAccess(server.exe_path), server.exe_name)
    return replace(server, resolution=resolve(file, server.flavour, server.version))


def settings_of(process: Candidate, flavour: str, version: str = "") -> Settings:
    """The configuration of a process of this product; it does not listen."""
    return support_of(flavour).settings(Running(process, flavour, version, Listening()))


def candidate(entry: Path, exe_name: str = "/bin/true", root: Path = Path("/")) -> Candidate:
    """A process whose directory in /proc is `entry`."""
    return Candidate(DirectAccess(entry, root), exe_name, int(entry.name))
