# SPDX-License-Identifier: Apache-2.0
"""A recording that is captured and not converted, written by the tracer's own code. Also: the
directory of a flight recorder.
"""

from __future__ import annotations

import fcntl
import io
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_tracer as ft
from qjoule.contract import Block, Loss, QueryFlag, SessionEvent, TaskEvent
from qjoule.engine.attribute import attribute
from qjoule.model.result import Attribution
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.spool.capture import Capture, CaptureContext, RingCapture
from qjoule.spool.files import FOLDER, WHOLE, open_ring, spool_of
from qjoule.spool.recorder import Bounds, Recorder, SaveRequest
from qjoule.spool.save import Saved
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from tracer_parts.spool_library import TracerStream, tracer_stream

CANARY = b"canary-4711"
_FLAGS = 0x200 | 0x8 | 0x8000  # PROTOCOL_41, CONNECT_WITH_DB, SECURE_CONNECTION
_PASSWORD = b"\x14" + CANARY.ljust(20, b"\1")
LOGIN = struct.pack("<IIB23x", _FLAGS, 1 << 24, 45) + b"alice\0" + _PASSWORD + b"shop\0"
META = Meta(host="here", servers=(Server(1, "shop", "mysql"),))


def _session(event: SessionEvent, t_ns: int, text: bytes = b"", session: int = 101) -> bytes:
    row = {"session": session, "t_ns": t_ns, "text_bytes": len(text), "event": event, "server": 1}
    return ft.block(Block.SESSION, row | {"server_kind": registry.kind_of("mysql")}, text=text)


#: Of a query of `eventful`'s first session.
QUERY = {"session": 101, "server": 1, "executions": 1, "attach_mode": 1, "command": 1, "pid": 101}


def eventful(seconds: float = 4.5) -> list[bytes]:
    """Traffic with whatever a stream can say: texts, logins, tags, transactions, children, loss."""
    pieces = ft.traffic(seconds, per_second=400)
    begin = ft.BEGIN_NS
    pieces[0] += _session(SessionEvent.OPEN, begin, LOGIN)
    pieces[0] += ft.text(77, b"SELECT * FROM t WHERE secret = '%s'" % CANARY)
    tags = b"endpoint='checkout',tenant='%d'" % 7
    row = {"shape": 9, "statement_bytes": len(tags), "text_bytes": len(tags), "dialect": 9}
    pieces[1] = ft.block(Block.TEXT, row, text=tags) + pieces[1]
    flags = QueryFlag.OK | QueryFlag.IN_TRANSACTION
    for number, (shape, flag) in enumerate([(77, flags), (1, QueryFlag.NO_TRANSACTION)]):
        at_ns = begin + 300 * ft.MS + number * ft.MS
        query = {"query": 900_001 + number, "begin_ns": at_ns, "end_ns": at_ns + 5, "flags": flag}
        query |= {"shape": shape, "tags": 9}
        pieces[20 + number] = ft.block(Block.QUERY, QUERY | query) + pieces[20 + number]
    pieces[0] += _session(SessionEvent.MET, begin, session=202)  # open before, in a transaction
    older = {"query": 900_010, "begin_ns": begin + 302 * ft.MS, "end_ns": begin + 302 * ft.MS + 5}
    older |= {"session": 202, "shape": 3, "flags": flags}
    pieces[21] = ft.block(Block.QUERY, QUERY | older) + pieces[21]
    child = {"child": 5, "query": 900_001, "begin_ns": begin + 301 * ft.MS, "session": 101}
    child |= {"end_ns": begin + 301 * ft.MS + 2, "shape": 2, "query_shape": 77, "server": 1}
    pieces[22] = ft.block(Block.CHILD, child) + pieces[22]
    helper: dict[str, Any] = {"query": 900_001, "pid": 556, "tgid": 556, "wait_ns": range(6)}
    helper |= {"begin_ns": begin + 301 * ft.MS, "end_ns": begin + 305 * ft.MS}
    pieces[23] = ft.block(Block.HELPER, helper) + pieces[23]
    pieces[40] = ft.task(begin + 700 * ft.MS, 555, TaskEvent.FORK, b"other") + pieces[40]
    segment_row = ft.segment(begin + 820 * ft.MS, begin + 821 * ft.MS, 555)
    pieces[41] = ft.block(Block.SEGMENT, segment_row) + pieces[41]
    pieces[50] = _session(SessionEvent.DATABASE, begin + 990 * ft.MS, b"books") + pieces[50]
    loss = {"t_ns": begin + 1000 * ft.MS, "count": 3, "lost_ns": 70, "cause": Loss.SEGMENT}
    pieces[60] = ft.block(Block.LOSS, loss) + pieces[60]
    late = ft.text(78, b"UPDATE late SET x = '%s'" % CANARY)
    pieces[70] = late + pieces[70]
    return pieces


def captured_trace(
    trace: Path,
    pieces: list[bytes],
    *,
    meta: Meta = META,
    compress: bool = False,
    **of_context: Any,
) -> Meta:
    """Captures a stream as the tracer would, without converting it. `of_context`: see
    `CaptureContext`."""
    trace.mkdir()
    (trace / FOLDER).mkdir()
    pipe = trace.parent / f"{trace.name}.pipe"
    with tracer_stream(pipe, spool_of(trace), compress=compress) as stream:
        for frame in Stream(io.BytesIO(b"".join(pieces))):
            if frame.kind in (Block.TEXT, Block.SESSION):
                stream.add_text(frame.kind, frame.records[0], frame.text)
            elif frame.kind is Block.FLUSH:
                stream.write(frame.t_ns, frame.t_ns)
            else:
                stream.add(frame.kind, frame.records)
        stream.write(ft.BEGIN_NS * 2, last=True)
    with pipe.open("rb") as source:
        context = CaptureContext(fingerprint, meta, **of_context)
        return Capture(trace, context).run(Stream(source))


# --------------------------------------------------------------------------------------------------
#
# A flight recorder's directory, written by the tracer's own code and read as the command does.

KEEP_S = 2.0  #: what most tests keep
_PIPE_BYTES = 1 << 20
_WAIT_S = 60.0


class RingTrace:
    """A recorder and its tracer, in one process. `messages`: those of the recorder."""

    def __init__(
        self, trace: Path, tracer: TracerStream, pipe: int, keep_s: float, bounds: Bounds
    ) -> None:
        self.trace, self._tracer, self._pipe = trace, tracer, pipe
        self.messages: list[str] = []
        self.now_s = 0.0
        self.recorder = Recorder(trace, keep_s, bounds, self.messages.append, lambda: self.now_s)
        self.capture = RingCapture(trace, CaptureContext(fingerprint, META), self.recorder)
        self._begun = False

    def feed(self, stream: bytes, on_frame: Callable[[int], object] = lambda _t_ns: None) -> None:
        """Has the tracer write a stream, and reads what it passes on. `on_frame` is called after
        each flush, with its frame's time.
        """
        for frame in Stream(io.BytesIO(stream), begun=True):
            if frame.kind in (Block.TEXT, Block.SESSION):
                self._tracer.add_text(frame.kind, frame.records[0], frame.text)
            elif frame.kind is Block.FLUSH:
                self._tracer.write(frame.t_ns, frame.t_ns)
                self.read()
                on_frame(frame.t_ns)
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
        """Makes the recorder save; returns the result once it has."""
        results: list[Saved | str] = []
        done = threading.Event()

        def answer(result: Saved | str) -> None:
            results.append(result)
            done.set()

        self.recorder.ask(SaveRequest(why, "a test", triggered, answer))
        self.recorder.process_requests(self.capture.now)
        assert done.wait(_WAIT_S)
        return results[0]

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
    """Attributes the trace and asserts that joules and times add up (laws 1 and 2)."""
    result = attribute(trace)
    for domain in result.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj > 0
    given_nj = sum(row.energy_nj for row in (*result.rows, *result.fixed))
    assert given_nj == result.domains[0].measured_nj
    busy_ns = sum(row.cpu_ns for row in (*result.rows, *result.fixed))
    assert busy_ns == len(trace.meta.cpus) * (trace.end_ns - trace.begin_ns)
    return result
