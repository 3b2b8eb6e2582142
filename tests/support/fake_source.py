# SPDX-License-Identifier: Apache-2.0
"""A snapshot source for tests of the live view: it yields what the test puts in."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from fake_attribution import typical
from qjoule.snapshots import Controls, Snapshot


class FakeSource:
    """Yields what is put in; blocks while there is nothing."""

    name = "fake"
    groups: tuple[str, ...] = ("fingerprint", "server", "database", "user")

    def __init__(self, *snapshots: Snapshot) -> None:
        self.queue: queue.Queue[Snapshot | Exception | None] = queue.Queue()
        for snapshot in snapshots:
            self.queue.put(snapshot)

    def put(self, item: Snapshot | Exception | None) -> None:
        """A snapshot, an error to raise, or None to end."""
        self.queue.put(item)

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        while not controls.stopped:
            item = self.queue.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def close(self) -> None:
        self.queue.put(None)


def snapshot(elapsed_s: float = 12.5, **other: object) -> Snapshot:
    attribution = typical(**other)
    return Snapshot(attribution, attribution, elapsed_s)
