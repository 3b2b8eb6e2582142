# SPDX-License-Identifier: Apache-2.0
"""A flight recorder's directory, written by the tracer's own code and read as the command does."""

from __future__ import annotations

import fcntl
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from captured_trace import META
from qjoule.contract import Block
from qjoule.engine.attribute import attribute
from qjoule.model.result import Attribution
from qjoule.servers.shapes import fingerprint
from qjoule.spool.capture import CaptureContext
from qjoule.spool.recorder import Bounds, Recorder, SaveRequest
from qjoule.spool.ring_capture import RingCapture
from qjoule.spool.ring_files import WHOLE, open_ring
from qjoule.spool.save import Saved
from qjoule.stream.blocks import Stream
from qjoule.trace.reader import Trace
from tracer_parts.spool_library import TracerStream

KEEP_S = 2.0  #: what most tests keep
_PIPE_BYTES = 1 << 20
_WAIT_S = 60.0


class RingTrace:
    """A recorder and its tracer, in one process. `said`: its words."""

    def __init__(
        self, trace: Path, tracer: TracerStream, pipe: int, keep_s: float, bounds: Bounds
    ) -> None:
        self.trace, self._tracer, self._pipe = trace, tracer, pipe
        self.said: list[str] = []
        self.now_s = 0.0
        self.recorder = Recorder(trace, keep_s, bounds, self.said.append, lambda: self.now_s)
        self.capture = RingCapture(trace, CaptureContext(fingerprint, META), self.recorder)
        self._begun = False

    def feed(self, stream: bytes, each: Callable[[int], object] = lambda _t_ns: None) -> None:
        """Has the tracer write a stream, and reads what it passes on. `each`: after each flush."""
        for frame in Stream(io.BytesIO(stream), begun=True):
            if frame.kind in (Block.TEXT, Block.SESSION):
                self._tracer.add_text(frame.kind, frame.records[0], frame.text)
            elif frame.kind is Block.FLUSH:
                self._tracer.write(frame.t_ns, frame.t_ns)
                self.read()
                each(frame.t_ns)
            else:
                self._tracer.add(frame.kind, frame.records)
                if frame.kind is Block.END:
                    self._tracer.write(int(frame.records["t_ns"][0]), last=True)
                    self.read()

    def read(self) -> None:
        pieces = b""
        while True:
            try:
                piece = os.read(self._pipe, _PIPE_BYTES)
            except BlockingIOError:
                break
            pieces += piece
        for frame in Stream(io.BytesIO(pieces), begun=self._begun):
            self._begun = True
            self.capture.add(frame)

    def save(self, why: str = "dump", *, triggered: bool = False) -> Saved | str:
        """Has it save, and waits."""
        found: list[Saved | str] = []
        done = threading.Event()

        def answer(result: Saved | str) -> None:
            found.append(result)
            done.set()

        self.recorder.ask(SaveRequest(why, "a test", triggered, answer))
        self.recorder.process_requests(self.capture.now)
        assert done.wait(_WAIT_S)
        return found[0]

    def saved(self) -> Saved:
        result = self.save()
        assert isinstance(result, Saved), result
        return result


@contextmanager
def ring_trace(
    trace: Path,
    keep_s: float,
    *,
    bounds: Bounds | None = None,
    compress: bool = False,
) -> Iterator[RingTrace]:
    """A recorder in a new directory."""
    trace.mkdir()
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(read_end, False)
    turn_ns = round(keep_s * 1e9 / WHOLE)
    with open_ring(trace) as files:
        tracer = TracerStream(write_end, files, 1 << 40, turn_ns=turn_ns, compress=compress)
        ring = RingTrace(trace, tracer, read_end, keep_s, bounds or Bounds(pause_s=0))
        ring.recorder.start()
        try:
            yield ring
        finally:
            ring.recorder.close(ring.capture.now)
            tracer.close()
            os.close(read_end)
            os.close(write_end)


def joined(pieces: Iterable[bytes]) -> bytes:
    return b"".join(pieces)


def conserved(trace: Trace) -> Attribution:
    """Its attribution, of which all joules have one owner and all times add up (laws 1 and 2)."""
    result = attribute(trace)
    for domain in result.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj > 0
    given_nj = sum(row.energy_nj for row in (*result.rows, *result.fixed))
    assert given_nj == result.domains[0].measured_nj
    busy_ns = sum(row.cpu_ns for row in (*result.rows, *result.fixed))
    assert busy_ns == len(trace.meta.cpus) * (trace.end_ns - trace.begin_ns)
    return result
