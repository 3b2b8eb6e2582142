# SPDX-License-Identifier: Apache-2.0
"""A mount namespace with a BPF file system of its own: no pin is seen outside of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qjoule.session.pin import BPFFS, PIN
from tracing.recording import Recorder


@dataclass(frozen=True)
class Place:
    """Where recorders and profilers run."""

    before: tuple[str, ...]  #: the words that run a command there
    root: Path  #: its files, as seen from here

    @property
    def pin(self) -> Path:
        return self.root / PIN.removeprefix("/")

    @property
    def map_id(self) -> int:
        completed = self.run("bpftool", "-j", "map", "show", "pinned", PIN)
        number: int = json.loads(completed.stdout)["id"]
        return number

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.before, *command], capture_output=True, text=True, check=False, timeout=60
        )

    def recorder(self, directory: Path, *options: str) -> Recorder:
        energy = ("--energy", "estimated:5,8,12,20")
        return Recorder(directory, *energy, *options, before=self.before)


@contextmanager
def mounted(system: str) -> Iterator[Place]:
    """A namespace in which /sys/fs/bpf is a new file system of this type."""
    script = f"mount -t {system} x {BPFFS} && echo mounted && exec sleep infinity"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mounted\n"
            inside = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--")
            yield Place(inside, Path(f"/proc/{holder.pid}/root"))
        finally:
            holder.kill()
