# SPDX-License-Identifier: Apache-2.0
"""Makes snapshots from the tracer's live stream, with the model that attributes traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from qjoule.engine.keys import EVERYTHING, Selection
from qjoule.engine.live_groups import GROUPS
from qjoule.engine.memory_adapter import Told, nobody
from qjoule.errors import QjouleError
from qjoule.live.stream_session import Choose, StreamSession, uncalibrated
from qjoule.model.coefficients import IdlePolicy
from qjoule.servers.decoding import OtherIds
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.announced import read_announced
from qjoule.stream.blocks import Stream
from qjoule.stream.named import Fingerprint
from qjoule.stream.names import Names
from qjoule.stream.reported_calls import CallReports
from qjoule.stream.watch import Watch
from qjoule.trace.meta import Meta


class StreamSource:
    """Snapshots of a tracer's stream, as long as it lasts.

    `meta`: what is not in the stream: host, kernel, servers. `stop`: asks the tracer to end, which
    ends the stream and so unblocks a read. `failure`: returns the tracer's last message if it
    failed. `snapshots` raises `QjouleError`, after a last snapshot, if the stream violates the
    contract or ends without the tracer's final block.
    """

    def __init__(
        self,
        stream: Stream,
        fingerprint: Fingerprint,
        meta: Meta,
        *,
        idle: IdlePolicy = "separate",
        choose: Choose = uncalibrated,
        stop: Callable[[], None] = lambda: None,
        failure: Callable[[], str] = lambda: "the tracer ended: start top again",
        name: str = "live",
        reports: CallReports | None = None,
        client_tags: bool = False,
        samples: bool = False,
        where: Selection = EVERYTHING,
        told: Told = nobody,
        watch: Watch | None = None,
        ids: OtherIds | None = None,
        groups: tuple[str, ...] = GROUPS,
        refresh_s: float = 0.0,
    ) -> None:
        """`reports`: source of the calls of applications. `client_tags`: whether the stream
        contains the tags that clients send to servers. `samples`: whether it contains queries that
        were drawn, which snapshots then have. `where`: selects queries. `told` is called
        now and then, and at the end, with what was learned of the machine. `watch` notices servers
        that are not traced. `ids` finds the ids that other tools have for statements. `groups`: as
        in `StreamSession`. `refresh_s`: between two snapshots' learning, if no block
        ends; 0: each snapshot learns."""
        self._refresh_ns = round(refresh_s * 1e9)
        self._told = told
        self._watch = watch
        self.name = name
        self.groups = groups
        self._reports, self._client_tags, self._where = reports, client_tags, where
        self._samples = samples
        self._meta, self._stream = meta, stream
        self._names = Names(fingerprint, meta.servers, ids=ids)
        self._idle: IdlePolicy = idle
        self._choose = choose
        self._stop = stop
        self._failure = failure

    def close(self) -> None:
        self._stop()

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        frames = iter(self._stream)
        announced, first = read_announced(frames, self._meta)
        session = StreamSession(
            announced,
            self._names,
            self._idle,
            controls,
            choose=self._choose,
            reports=self._reports,
            client_tags=self._client_tags,
            samples=self._samples,
            where=self._where,
            told=self._told,
            watch=self._watch,
            groups=self.groups,
            refresh_ns=self._refresh_ns,
        )
        for frame in chain([first] if first is not None else [], frames):
            if controls.stopped:
                session.memory.tell(0, at_once=True)
                return
            session.take(frame)
            if session.due(controls):
                snapshot = session.snapshot(controls)
                if snapshot is not None:
                    yield snapshot
        last = session.snapshot(controls, ended=True, complete=self._stream.complete)
        if last is not None:
            yield last
        if not controls.stopped and (self._stream.ended_early or self._stream.stop_errno):
            raise QjouleError(self._failure())
