# SPDX-License-Identifier: Apache-2.0
"""Reads what a candidate reports about itself: command line, environment and names, all bounded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from qjoule.errors import QjouleError
from qjoule.servers.access import Access, Opened, ProcFile
from qjoule.servers.elf import Executable, open_executable

COMMAND_LINE_BYTES_MAX = 2 << 20  #: execve(2) accepts less, but a process may claim more
_WORDS_MAX = 32_768


@dataclass(frozen=True)
class Candidate:
    """A process that may be a server."""

    access: Access
    exe_name: str  #: its executable's path, as the process sees it
    pid: int = 0
    exe_id: tuple[int, int] | None = None  #: its executable's (device, inode)

    @property
    def base_name(self) -> str:
        return self.exe_name.rpartition("/")[2]

    @cached_property
    def command_line(self) -> bytes:
        """Each word ends with a zero byte. A command line beyond the bound is cut to one byte
        more."""
        return self.access.proc(ProcFile.CMDLINE)[: COMMAND_LINE_BYTES_MAX + 1]

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        return _strings(self.command_line)

    @cached_property
    def environment(self) -> dict[str, str]:
        whole = self.access.proc(ProcFile.ENVIRON)[:COMMAND_LINE_BYTES_MAX]
        pairs = (entry.partition("=") for entry in _strings(whole))
        return {name: value for name, _, value in pairs}

    @cached_property
    def working_directory(self) -> str:
        """As the process sees it; empty when it cannot be read."""
        return self.access.working_directory()

    @property
    def name(self) -> str:
        """Its name as shown by `ps`: the one the process gave itself, at most 15 bytes."""
        return text_of(self.access.proc(ProcFile.COMM)).rstrip("\n") or self.base_name

    @property
    def cpu_ticks(self) -> int:
        """CPU time so far of all its threads, past and present (proc(5): utime + stime)."""
        return cpu_ticks(self.access.proc(ProcFile.STAT))

    @cached_property
    def executable(self) -> Executable:
        """Raises `QjouleError`."""
        return open_executable(self._open())

    @property
    def file(self) -> Opened:
        """Returns the executable as first opened. The caller then owns the descriptor.

        Raises `QjouleError`.
        """
        if not self._opened:
            self._open().close()
        return self._opened[0]

    @cached_property
    def _opened(self) -> list[Opened]:
        return []

    def _open(self) -> Opened:
        file = self.access.executable()
        if self.exe_id is not None and file.identity.key != self.exe_id:
            file.close()
            raise QjouleError("it runs another executable now")
        self._opened.append(file)
        return file

    def text(self, path: str) -> str | None:
        """Returns a file below its root as text; None without one. Raises `Unreadable`."""
        content = self.access.file(path)
        return None if content is None else content.decode(errors="replace")


def cpu_ticks(stat: bytes) -> int:
    """Parses a /proc/PID/stat. The name in parentheses may contain spaces and parentheses."""
    fields = stat.rpartition(b")")[2].split(maxsplit=14)[11:13]
    if len(fields) < 2 or not all(len(f) <= 20 and f.isdigit() for f in fields):
        return 0
    return sum(map(int, fields))


def text_of(content: bytes) -> str:
    """Decodes UTF-8; keeps other bytes."""
    return content.decode(errors="surrogateescape")


def _strings(content: bytes) -> tuple[str, ...]:
    words = content.rstrip(b"\0").split(b"\0", _WORDS_MAX)[:_WORDS_MAX]
    return tuple(map(text_of, words)) if content else ()
