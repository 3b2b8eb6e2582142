# SPDX-License-Identifier: Apache-2.0
"""`qjoule-tracer` and a root part without the Python command: its stream is read as it arrives."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from qjoule.contract import RECORDS, Block, Mode
from qjoule.servers.plan import AttachPlan
from qjoule.stream.blocks import Frame, Stream
from tracing.root_part import ROOT_PART, RootPart, root_part, with_handles

TRACER = Path(sys.executable).parent / "qjoule-tracer"
STOP_TIMEOUT_S = 60
NOBODY = 65534


class Session:
    """A running tracer. `attached` is set with its first block, or when it will send none."""

    def __init__(self, process: subprocess.Popen[bytes], control: int, root: RootPart) -> None:
        assert process.stdout is not None
        self.process, self._control = process, control
        self.root = root
        self.frames: list[Frame] = []
        self.attached = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,))
        self._reader.start()

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            for frame in Stream(pipe):
                self.frames.append(frame)
                self.attached.set()
        finally:
            self.attached.set()

    def records(self, kind: Block) -> np.ndarray:
        """All records of a kind so far."""
        parts = [frame.records for frame in self.frames if frame.kind is kind]
        return np.concatenate(parts) if parts else np.empty(0, RECORDS[kind])

    def finish(self) -> str:
        """Makes the tracer end its stream; returns its stderr."""
        self._let_go()
        self._reader.join()
        assert self.process.stderr is not None
        words = self.process.stderr.read().decode()
        assert self.process.wait(STOP_TIMEOUT_S) == 0, words
        return words

    def end(self) -> None:
        """Ends in any case: no tracer and no thread is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self._let_go()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _let_go(self) -> None:
        if self._control >= 0:
            os.close(self._control)
            self._control = -1


@contextmanager
def tracing(
    mode: Mode,
    *options: str,
    plan: AttachPlan | None = None,
    probes: Callable[[RootPart], Sequence[str]] = lambda _: (),
    tracer: Path = TRACER,
    root_program: Path = ROOT_PART,
) -> Iterator[Session]:
    """A tracer that is attached before the block begins. Call `finish()` in the block to end it."""
    read_end, write_end = os.pipe()
    arguments = ["--mode", mode.name.lower(), "--control-fd", str(read_end)]
    with root_part(program=root_program) as root:
        if plan is not None:
            arguments += with_handles(root, plan).arguments()
        arguments += probes(root)
        with root.tracer() as asked:
            process = subprocess.Popen(
                [
                    *(str(tracer), *arguments, "--root", str(asked.fileno())),
                    *("--reader", str(os.getpid()), *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(read_end, asked.fileno()),
                env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"},
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
            )
        os.close(read_end)
        session = Session(process, write_end, root)
        try:
            assert session.attached.wait(STOP_TIMEOUT_S)
            yield session
        finally:
            session.end()
