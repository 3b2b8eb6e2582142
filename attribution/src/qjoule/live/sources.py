# SPDX-License-Identifier: Apache-2.0
"""Makes snapshots of the tracer's live stream by the model of `qjoule attribute`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from qjoule.contract import Block
from qjoule.errors import QjouleError
from qjoule.live.options import LiveOptions
from qjoule.live.stream_session import StreamSession
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.block_reader import read_announced
from qjoule.stream.blocks import Stream
from qjoule.stream.context import StreamContext
from qjoule.stream.names import Names


class StreamSource:
    """Snapshots of a tracer's stream, as long as it lasts.

    `stop`: asks the tracer to end, which ends the stream and so unblocks a read. `failure`: returns
    the tracer's last message if it failed. `snapshots` raises `QjouleError`, after a last snapshot,
    if the stream violates the contract or ends without the tracer's final block.
    """

    def __init__(
        self,
        stream: Stream,
        context: StreamContext,
        options: LiveOptions = LiveOptions(),  # noqa: B008 - it is frozen
        *,
        stop: Callable[[], None] = lambda: None,
        failure: Callable[[], str] = lambda: "the tracer ended: start top again",
        name: str = "live",
    ) -> None:
        self.name = name
        self.groups = options.groups
        self._stream, self._context, self._options = stream, context, options
        self._names = Names(context.fingerprint, context.meta.servers, ids=context.ids)
        self._stop = stop
        self._failure = failure

    def close(self) -> None:
        self._stop()

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        frames = iter(self._stream)
        announced, first = read_announced(frames, self._context.meta)
        session = StreamSession(announced, self._names, self._context, self._options, controls)
        for frame in chain([first] if first is not None else [], frames):
            if controls.stopped:
                session.memory.publish_evidence(0, at_once=True)
                return
            session.add(frame)
            # Before a FLUSH, a window may have its readings and lack sums.
            if frame.kind is Block.FLUSH and session.due(controls):
                snapshot = session.snapshot(controls)
                if snapshot is not None:
                    yield snapshot
        last = session.snapshot(controls, ended=True, complete=self._stream.complete)
        if last is not None:
            yield last
        if not controls.stopped and (self._stream.ended_early or self._stream.stop_errno):
            raise QjouleError(self._failure())
