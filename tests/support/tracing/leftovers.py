# SPDX-License-Identifier: Apache-2.0
"""What a run of tests leaves behind on the machine: files, mounts, processes.

Temporary files go to the run's own directory, which must be empty at the end. Some files do not
follow TMPDIR (a JVM's, those that other users have to reach). So new files with our names in the
machine's own directories are checked too. They may belong to another run at the same time: they
fail the run in CI, where there is no other, and are only shown to a developer.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from other_user import for_all_users

PREFIX = "qjoule-run-"
#: Time limit for what is still being torn down when the last test has ended.
PATIENCE_S = 20.0
#: Programs that unit tests compile once; they are removed when the interpreter exits.
_UNTIL_EXIT = ("qjoule-energy-probe-", "qjoule-load-", "qjoule-unwinding-")
#: Directories, and the file names in them that only these tests or qjoule use.
_PLACES = {
    "/tmp": r"qjoule-(demo|physical|server|tags|test-toy|[0-9a-f]{16}$)"
    r"|\.java_pid\d|\.attach_pid\d",
    "/var/tmp": "qjoule-",
    "/opt": "qjoule-",
    "/dev/shm": "qjoule-",
    "/run/qjoule": "",
    "/sys/fs/bpf": "",
}


@dataclass(frozen=True)
class Before:
    """The state of the machine before the run, and the run's own directory."""

    temporary: Path
    existing: frozenset[str]
    others_temporary: str | None  #: TMPDIR before the run

    def left(self) -> list[str]:
        """Lists what this run left behind; waits for what is just being removed."""
        return _wait_for_nothing(self._left, PATIENCE_S)

    def left_elsewhere(self) -> list[str]:
        """Lists what is new on the machine, from this run or another one."""
        patience_s = PATIENCE_S if os.environ.get("CI") else 0.0
        return _wait_for_nothing(lambda: sorted(_machine() - self.existing), patience_s)

    def _left(self) -> list[str]:
        files = [p for p in self.temporary.iterdir() if not p.name.startswith(_UNTIL_EXIT)]
        return [f"file {path}" for path in files] + _processes(self.temporary)

    def restore(self) -> None:
        """Restores TMPDIR, and removes the directory with everything in it."""
        if self.others_temporary is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = self.others_temporary
        tempfile.tempdir = None
        shutil.rmtree(self.temporary, ignore_errors=True)


def begin() -> Before:
    """From here on, temporary files of this process and its children go to the run's own
    directory.
    """
    leftovers, others = _machine(), os.environ.get("TMPDIR")
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_pytest_root()))
    temporary = Path(tempfile.mkdtemp(prefix=PREFIX, dir=for_all_users()))
    temporary.chmod(0o1777)  # servers run as other users
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    return Before(temporary, frozenset(leftovers), others)


def _pytest_root() -> Path:
    """Where pytest keeps tmp_path of the last runs, to investigate failures.

    It belongs to this checkout: a run of another one would close it to other users at its start.
    Its name is short, because the path of a Unix socket may have only 107 bytes.
    """
    checkout = hashlib.sha256(os.fsencode(Path(__file__).resolve().parents[3])).hexdigest()[:6]
    place = Path(for_all_users(), f"qj-{checkout}")
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    return place


def _wait_for_nothing(list_leftovers: Callable[[], list[str]], patience_s: float) -> list[str]:
    deadline = time.monotonic() + patience_s
    while (leftovers := list_leftovers()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return leftovers


def _machine() -> set[str]:
    """Files with our names, and mounts, except for the kernel's own, such as tracefs where it is
    used.
    """
    points = {line.split()[4] for line in _lines("/proc/self/mountinfo")}
    leftovers = {f"mount {point}" for point in points if not point.startswith("/sys/")}
    for place, pattern in _PLACES.items():
        with suppress(OSError):
            names = (path for path in Path(place).iterdir() if re.match(pattern, path.name))
            leftovers |= {f"file {path}" for path in names if not _is_served(path)}
    return leftovers


def _is_served(path: Path) -> bool:
    """True for the socket of a running recorder: somebody traces beside these tests."""
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        return probe.connect_ex(str(path)) == 0


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _processes(temporary: Path) -> list[str]:
    """Processes that work in the directory or name it, except for this one and its parents."""
    own_pids = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    leftovers = []
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error, OSError):
            process_tmpdir = process.environ().get("TMPDIR", "")
            inside = Path(process.cwd()).is_relative_to(temporary) or process_tmpdir == str(
                temporary
            )
            if inside and process.pid not in own_pids:
                leftovers.append(f"process {process.pid} ({process.info['name']})")
    return leftovers
