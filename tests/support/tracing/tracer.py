# SPDX-License-Identifier: Apache-2.0
"""`qjoule-tracer` and a root part without the Python command: its stream is read as it arrives.

Its requests to the root part can also be made from a test: programs are loaded and attached.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from qjoule.contract import CONTRACT_VERSION, RECORDS, Block, Mode
from qjoule.root_part.protocol import CODE_BYTES, Kind, Refused, Reply, ask
from qjoule.servers.attach_plan import AttachPlan
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
        messages = self.process.stderr.read().decode()
        assert self.process.wait(STOP_TIMEOUT_S) == 0, messages
        return messages

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
        with root.tracer() as control:
            process = subprocess.Popen(
                [
                    *(str(tracer), *arguments, "--root", str(control.fileno())),
                    *("--reader", str(os.getpid()), *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(read_end, control.fileno()),
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


_TREE = Path(__file__).parents[3]
_MAPS_MAX, _PROGRAMS_MAX = 128, 256  # RP_MAX_MAPS, RP_MAX_PROGS
#: Names of the descriptors that keep something loaded or attached.
_HOLDING = ("anon_inode:bpf_link", "anon_inode:[perf_event]", "anon_inode:bpf-prog")


@functools.cache
def _numbered(kind: str) -> dict[str, int]:
    """The numbers of the skeleton's maps or programs, by name."""
    skeleton = _TREE / "build" / "bpf" / "qjoule.skel.h"
    if not skeleton.exists():
        pytest.skip("the skeleton is not built: make", allow_module_level=True)
    matches = re.findall(rf's->{kind}\[(\d+)\]\.name = "(.*?)";', skeleton.read_text())
    return {name: int(number) for number, name in matches}


def maps() -> dict[str, int]:
    return _numbered("maps")


def programs() -> dict[str, int]:
    return _numbered("progs")


def load_bytes(
    *names: str,
    version: int = CONTRACT_VERSION,
    counts: tuple[int, int] = (0, 0),
    entries: int = 0,
    size: int | None = None,
) -> bytes:
    """`struct rp_load` for these programs, with an empty plan.

    Args:
        counts: added to the correct numbers of maps and programs.
        entries: of every map; 0: as in the source.
        size: where it is cut.
    """
    numbers = programs()
    head = (version, len(maps()) + counts[0], len(numbers) + counts[1], 0)
    values = [word for number in head for word in number.to_bytes(4, "little")]
    values += [*(1).to_bytes(4, "little"), *entries.to_bytes(4, "little")] * _MAPS_MAX
    chosen_numbers = [numbers[name] for name in names]
    values += [int(number in chosen_numbers) for number in range(_PROGRAMS_MAX)]
    return (bytes(values) + bytes(_plan_bytes()))[:size]


def _plan_bytes() -> int:
    skeleton = (_TREE / "build" / "bpf" / "qjoule.skel.h").read_text()
    match = re.search(r"sizeof\(s->rodata->plan\) == (\d+)", skeleton)
    assert match is not None
    return int(match[1])


def load(tracer: socket.socket, content: bytes) -> Reply:
    """Asks the root part to load; raises `Refused`."""
    fd = os.memfd_create("test")
    try:
        os.write(fd, content)
        return ask(tracer, Kind.LOAD, fd=fd)
    finally:
        os.close(fd)


def uprobe(tracer: socket.socket, program: str, handle: int, offset: int, code: bytes) -> Reply:
    """Asks the root part to attach; raises `Refused`."""
    return ask(
        tracer,
        Kind.ATTACH,
        pid=handle,
        offset=offset,
        size=len(code),
        text=code.ljust(CODE_BYTES, b"\0") + program.encode(),
    )


@contextmanager
def refused(number: int) -> Iterator[None]:
    with pytest.raises(Refused) as raised:
        yield
    assert errno.errorcode[raised.value.errno] == errno.errorcode[number]


def bpf_descriptors(root: RootPart) -> Counter[str]:
    """The descriptors in the root part that keep something loaded or attached, by kind."""
    links: Counter[str] = Counter()
    for link in Path(f"/proc/{root.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links[str(link.readlink())] += 1
    return Counter({name: links[name] for name in _HOLDING if links[name]})
