# SPDX-License-Identifier: Apache-2.0
"""Says when a batch of records is closed, by the stream's own clock and by how much has arrived.

It counts what arrives, not what a reader keeps, so all readers of a stream make the same batches.
"""

from __future__ import annotations

from qjoule.stream.blocks import TIME_LIMIT_NS

#: A shorter batch loses less in a crash, but even a small batch takes 10 ms of CPU time.
BATCH_NS = 2_000_000_000
#: A batch of this many records is closed after a quarter of that time: larger batches cost no less.
FULL_RECORDS = 100_000
#: A batch is closed at this many records even if the stream's clock stands still.
BATCH_RECORDS = 1_000_000


class BatchClock:
    """The latest times of a stream. `due` says whether its batch is to be closed."""

    def __init__(self, batch_ns: int = BATCH_NS) -> None:
        self._batch_ns = batch_ns
        self.now_ns = 0  #: latest time in the stream
        self.sent_ns = 0  #: every segment that began before this has been sent
        self._closed_ns = 0
        self._arrived = 0  #: records since the last batch

    def begin(self, t_ns: int) -> None:
        """The stream begins."""
        self.now_ns = self._closed_ns = t_ns

    def arrived(self, records: int) -> None:
        self._arrived += records

    @property
    def is_full(self) -> bool:
        return self._arrived > BATCH_RECORDS

    def close(self) -> None:
        """A batch was closed."""
        self._closed_ns = self.now_ns
        self._arrived = 0

    def due(self, t_ns: int, *, sent: bool) -> bool | None:
        """Moves the clock. None: no batch is due; else whether to close it with everything.

        A batch waits up to half its length for the next FLUSH block, so that parts do not overlap
        in time. If none comes, the batch is closed anyway.
        """
        if t_ns >= TIME_LIMIT_NS:
            return None
        self.now_ns = max(self.now_ns, t_ns)
        if sent:
            self.sent_ns = max(self.sent_ns, t_ns)
        due_ns = self._batch_ns if self._arrived < FULL_RECORDS else self._batch_ns // 4
        if self.sent_ns - self._closed_ns >= due_ns:
            return False
        if self.now_ns - self._closed_ns >= due_ns * 3 // 2:
            return self.sent_ns < self.now_ns - due_ns
        return None
