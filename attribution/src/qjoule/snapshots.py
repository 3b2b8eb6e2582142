# SPDX-License-Identifier: Apache-2.0
"""Snapshots: the input of a live view, whether it is live or replays a trace."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from qjoule.model.result import Attribution

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from qjoule.engine.stacks import RecentStacks


@dataclass(frozen=True)
class Sampled:
    """Queries that were drawn at random and ended in an interval, n of them."""

    queries: npt.NDArray[np.void]  #: (n,) `qjoule.contract.QUERY`
    cpu_ns: npt.NDArray[np.int64]  #: (n,)
    probability: npt.NDArray[np.float64]  #: (n,) of being drawn
    #: (n,) From its end to the interval's; negative: it ended after it.
    ago_ns: npt.NDArray[np.int64]
    servers: list[str]
    fingerprints: list[str]  #: empty: the statement is not known
    users: list[str | None]
    databases: list[str | None]
    applications: list[str | None]
    clients: list[str | None]  #: addresses, or `unix`
    #: (n,) Trace and span, in hexadecimal; None: its client sent none, or tags are not read.
    traces: list[tuple[str, str] | None]


@dataclass(frozen=True)
class Snapshot:
    """The results up to one moment.

    `interval` covers the last interval, `total` everything since the last reset. `elapsed_s` is the
    time since tracing began, on the trace's own clock. If the total is not needed
    (`Controls.totals`), it may be the interval's.
    """

    interval: Attribution
    total: Attribution
    elapsed_s: float
    ended: bool = False  #: the trace or the tracer has ended: no snapshot follows
    groups: tuple[str, ...] = ()  #: groupings offered now; none: the source's `groups`
    also: Mapping[str, Attribution] = field(default_factory=dict)
    """The interval by each of `Controls.also`."""
    sampled: Sampled | None = None  #: queries of the interval that were drawn; None: none are
    stacks: RecentStacks | None = None
    """Of the rows of `interval`. None: none are sampled, or their minute has not ended."""


class Controls:
    """The view's requests to its source, which runs in another thread."""

    def __init__(
        self,
        interval_s: float = 2.0,
        group: str = "fingerprint",
        *,
        totals: bool = True,
        also: tuple[str, ...] = (),
    ) -> None:
        """`totals`: whether `Snapshot.total` is needed; otherwise a live source may leave it
        out. `also`: further groupings of a live source that each interval is wanted by."""
        self.totals, self.also = totals, also
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._interval_s = interval_s
        self._group = group
        self._resets = 0
        self._stopped = False

    @property
    def interval_s(self) -> float:
        with self._lock:
            return self._interval_s

    @property
    def group(self) -> str:
        with self._lock:
            return self._group

    @property
    def resets(self) -> int:
        """Number of resets requested: a source starts over when it changes."""
        with self._lock:
            return self._resets

    @property
    def stopped(self) -> bool:
        with self._lock:
            return self._stopped

    def set(self, *, interval_s: float | None = None, group: str | None = None) -> None:
        with self._changed:
            self._interval_s = interval_s or self._interval_s
            self._group = group or self._group
            self._changed.notify_all()

    def reset(self) -> None:
        with self._changed:
            self._resets += 1
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def interrupted(self) -> None:
        """`stop()` for a signal's handler: takes no lock, and ends no `wait` by itself."""
        self._stopped = True

    def wait(self, timeout_s: float) -> bool:
        """Sleeps, but not beyond `stop()`; returns whether to continue."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, max(0.0, timeout_s))
            return not self._stopped


class SnapshotSource(Protocol):
    """Makes snapshots until its trace or tracer ends.

    `snapshots` blocks and is run in a thread of its own. It follows `controls` from one
    snapshot to the next and returns soon after `controls.stop()`; `close` unblocks a read, from
    any thread, and may be called twice.
    """

    name: str  #: what is being watched, for the title

    @property
    def groups(self) -> tuple[str, ...]:
        """The groupings that rows can have."""

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]: ...

    def close(self) -> None: ...
