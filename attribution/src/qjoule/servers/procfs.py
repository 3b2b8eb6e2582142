"""What /proc says of one process. Processes may vanish at any moment: then nothing is said."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

DELETED = " (deleted)"  #: the kernel appends it to the name of an unlinked executable
_TEXT_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class Process:
    """A process with a readable executable."""

    pid: int
    parent: int
    directory: Path  #: /proc/PID
    exe_name: str  #: as the process sees it, without DELETED
    deleted: bool
    exe_id: tuple[int, int]  #: (device, inode)

    @property
    def base_name(self) -> str:
        return self.exe_name.rpartition("/")[2]

    @property
    def root(self) -> Path:
        return self.directory / "root"

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        return _strings(self.directory / "cmdline")

    @cached_property
    def environment(self) -> dict[str, str]:
        pairs = (entry.partition("=") for entry in _strings(self.directory / "environ"))
        return {name: value for name, _, value in pairs}

    @property
    def name(self) -> str:
        """As `ps` shows it: what the process calls itself, at most 15 bytes."""
        return read_text(self.directory / "comm").rstrip("\n") or self.base_name

    @property
    def cpu_ticks(self) -> int:
        """CPU time so far, of all its threads that ever were (proc(5): utime + stime)."""
        fields = read_text(self.directory / "stat").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) if len(fields) > 12 else 0

    @property
    def working_directory(self) -> str:
        """As the process sees it; empty when it cannot be read."""
        try:
            return str((self.directory / "cwd").readlink())
        except OSError:
            return ""

    def openable_executable(self, host_root: Path = Path("/")) -> Path:
        """A path that opens this very file from here, the plainest first."""
        if not self.deleted:
            inside = self.exe_name.lstrip("/")
            for path in (host_root / inside, self.root / inside):
                if file_id(path) == self.exe_id:
                    return path
        return self.directory / "exe"


def processes(proc: Path, hidden: list[int] | None = None) -> Iterator[Process]:
    """Every process whose executable can be seen; kernel threads have none.

    `hidden` collects the processes that only root may look at.
    """
    for entry in sorted(proc.iterdir(), key=lambda path: path.name):
        if not entry.name.isdigit():
            continue
        try:
            name = str((entry / "exe").readlink())
            identity = file_id(entry / "exe")
            parent = _parent(entry)
        except PermissionError:
            if hidden is not None:
                hidden.append(int(entry.name))
            continue
        except (OSError, ValueError, IndexError):
            continue
        if identity is not None:
            plain = name.removesuffix(DELETED)
            yield Process(int(entry.name), parent, entry, plain, plain != name, identity)


def file_id(path: Path) -> tuple[int, int] | None:
    """(device, inode) of a regular file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _parent(entry: Path) -> int:
    # The name in parentheses may itself hold spaces and parentheses (proc(5), /proc/pid/stat).
    return int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])


def _strings(path: Path) -> tuple[str, ...]:
    return tuple(read_text(path).rstrip("\0").split("\0")) if read_text(path) else ()


def read_text(path: Path) -> str:
    """The file's text, empty when it cannot be read; bytes that are no UTF-8 are kept."""
    with suppress(OSError), path.open("rb") as stream:
        return stream.read(_TEXT_BYTES_MAX).decode(errors="surrogateescape")
    return ""
