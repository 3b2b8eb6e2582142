# SPDX-License-Identifier: Apache-2.0
"""The snapshots of an agent elsewhere, as a source of the live view."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from qjoule.errors import QjouleError
from qjoule.model.result import Attribution, TracePart
from qjoule.model.together import together
from qjoule.remote.client import Connection
from qjoule.remote.wire import MAX_ROWS, decode
from qjoule.snapshots import Controls, Snapshot

#: An interval lasts a second at least, and is shown as long as that.
POLL_S = 0.5
#: An agent that cannot be reached for so long, once it was, has gone.
PATIENCE_S = 60.0


class RemoteSource:
    """Snapshots of intervals as the agent makes them; the totals since a reset are added up here.

    `snapshots` raises `QjouleError` if the agent refuses, sends what it should not, or stays away.
    """

    groups: tuple[str, ...] = ("server,fingerprint",)

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._connection.stop()

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        total: Attribution | None = None
        resets, seen_s = controls.resets, 0.0
        while not controls.stopped:
            try:
                content = self._connection.snapshot()
            except ConnectionError as error:
                if self._closed:
                    return
                if not seen_s or time.monotonic() - seen_s > PATIENCE_S:
                    raise QjouleError(str(error)) from None
                content = None
            else:
                seen_s = time.monotonic()
            if content is not None:
                snapshot, _ = decode(content)
                if controls.resets != resets:
                    total, resets = None, controls.resets
                if controls.totals:
                    total = _added(total, snapshot.interval)
                yield replace(snapshot, total=total or snapshot.interval)
                if snapshot.ended:
                    return
            if not controls.wait(POLL_S):
                return


def _added(total: Attribution | None, interval: Attribution) -> Attribution:
    """The sum of both. It begins anew if they do not fit together, or grow beyond their bound."""
    if total is None or len(total.rows) + len(total.fixed) > MAX_ROWS:
        return interval
    same = (total.trace.host, total.policy) == (interval.trace.host, interval.policy)
    if not same or len(total.domains) != len(interval.domains):
        return interval
    found = together([TracePart("", total), TracePart("", interval)])
    # Intervals do not overlap, even if all give the time at which tracing began. What is said of
    # the model and of changes would grow with each of them.
    duration_s = total.trace.duration_s + interval.trace.duration_s
    trace = replace(found.trace, changes=interval.trace.changes, duration_s=duration_s)
    source = interval.energy_source
    return replace(found, trace=trace, energy_source=source, model=interval.model, parts=())
