# SPDX-License-Identifier: Apache-2.0
"""A /proc made of ordinary files; processes and servers in the forms that discovery reads, and that
it gives to a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess, FileAccess
from qjoule.servers.examine import resolve
from qjoule.servers.processes import Listening
from qjoule.servers.registered import support_of
from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Server


class FakeProc:
    """`tree` is the directory to pass as `proc`; `host` the one to pass as `root`."""

    def __init__(self, base: Path) -> None:
        self.tree, self.host = base / "proc", base / "host"
        self.tree.mkdir()
        self.host.mkdir()
        (self.tree / "self").symlink_to("1")
        (self.tree / "meminfo").write_text("")

    def add(
        self,
        pid: int,
        exe: str,
        *,
        arguments: Sequence[str] = (),
        parent: int = 1,
        root: Path | None = None,
        cwd: str = "/",
        environment: Sequence[str] = (),
        name: str = "x",
        comm: str = "",
        ticks: int = 0,
        command_line: bytes | None = None,
    ) -> Path:
        """Adds a process. `exe` is the full path of a real file here, because it becomes an
        ordinary link.
        """
        entry = self.tree / str(pid)
        entry.mkdir()
        (entry / "exe").symlink_to(exe)
        (entry / "root").symlink_to(root or self.host)
        (entry / "cwd").symlink_to(cwd)
        (entry / "stat").write_text(
            f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 0 0 0 0 0 {ticks} {ticks}"
        )
        argv = [exe, *arguments]
        if command_line is None:
            command_line = "".join(f"{word}\0" for word in argv).encode()
        (entry / "cmdline").write_bytes(command_line)
        if comm:
            (entry / "comm").write_text(f"{comm}\n", "utf-8")
        (entry / "environ").write_text("".join(f"{word}\0" for word in environment), "utf-8")
        (entry / "fd").mkdir()
        (entry / "net").mkdir()
        return entry

    def listen(
        self,
        pid: int,
        *,
        port: int | None = None,
        udp: int | None = None,
        unix: str = "",
        inode: int = 77,
    ) -> None:
        """Adds one socket. Its tables replace those of the last call for this process."""
        entry = self.tree / str(pid)
        (entry / "fd" / str(inode)).symlink_to(f"socket:[{inode}]")
        if port is not None:
            (entry / "net" / "tcp").write_text(
                "  sl  local_address rem_address   st tx_queue tr tm->when retrnsmt   uid\n"
                f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 {inode} 1 0\n"
                f"   1: 0100007F:{port:04X} 0100007F:CAFE 01 0:0 0:0 0 0 0 {inode + 1} 1 0\n"
                "   2: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 4711 1 0\n"
            )
        if udp is not None:
            (entry / "net" / "udp").write_text(
                "  sl  local_address rem_address   st tx_queue tr tm->when retrnsmt   uid\n"
                f"   0: 00000000:{udp:04X} 00000000:0000 07 0:0 0:0 0 0 0 {inode} 1 0\n"
                f"   1: 00000000:{udp + 1:04X} 0100007F:0035 01 0:0 0:0 0 0 0 {inode} 1 0\n"
            )
        if unix:
            (entry / "net" / "unix").write_text(
                "Num       RefCount Protocol Flags    Type St Inode Path\n"
                f"0: 00000002 00000000 00010000 0001 01 {inode} {unix}\n"
                "0: 00000002 00000000 00010000 0001 01 4712 /run/other\n"
                f"0: 00000003 00000000 00000000 0001 03 {inode} {unix}\n"
            )


def examined(server: Server) -> Server:
    """The server with its probe points, as resolved in its executable."""
    file = Candidate(FileAccess(server.exe_path), server.exe_name)
    return replace(server, resolution=resolve(file, server.flavour, server.version))


def settings_of(process: Candidate, flavour: str, version: str = "") -> Settings:
    """The configuration of a process of this product; it does not listen."""
    return support_of(flavour).settings(Running(process, flavour, version, Listening()))


def candidate(entry: Path, exe_name: str = "/bin/true", root: Path = Path("/")) -> Candidate:
    """A process whose directory in /proc is `entry`."""
    return Candidate(DirectAccess(entry, root), exe_name, int(entry.name))
