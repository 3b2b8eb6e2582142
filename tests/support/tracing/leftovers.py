# SPDX-License-Identifier: Apache-2.0
"""What a run of tests leaves behind in its own TMPDIR: files, and processes that work there."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from temporary import for_all_users

PREFIX = "qjoule-run-"
#: Time limit for what is still being torn down when the last test has ended.
PATIENCE_S = 20.0
#: Programs that unit tests compile once; they are removed when the interpreter exits.
_UNTIL_EXIT = ("qjoule-energy-probe-", "qjoule-load-")


@dataclass(frozen=True)
class Before:
    """The state of the machine before the run, and the run's own directory."""

    temporary: Path
    others_temporary: str | None  #: TMPDIR before the run

    def left(self) -> list[str]:
        """What this run left behind; waits for what is just being removed."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

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
    others = os.environ.get("TMPDIR")
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_kept()))
    temporary = Path(tempfile.mkdtemp(prefix=PREFIX, dir=for_all_users()))
    temporary.chmod(0o1777)  # servers run as other users
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    return Before(temporary, others)


def _kept() -> Path:
    """Where pytest keeps tmp_path of the last runs, to investigate failures."""
    checkout = hashlib.sha256(os.fsencode(Path(__file__).resolve().parents[3])).hexdigest()[:6]
    place = Path(for_all_users(), f"qj-{checkout}")
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    return place


def _processes(temporary: Path) -> list[str]:
    """Processes that work in the directory or name it, except for this one and its parents."""
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error, OSError):
            told = process.environ().get("TMPDIR", "")
            inside = Path(process.cwd()).is_relative_to(temporary) or told == str(temporary)
            if inside and process.pid not in mine:
                found.append(f"process {process.pid} ({process.info['name']})")
    return found
