# SPDX-License-Identifier: Apache-2.0
"""Figures of a snapshot's two spans that ledgers do not contain: loss, throttling and anomalies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from qjoule.engine.accounts import throttled_note
from qjoule.machine.throttling import RecentCounts, ThrottleCounts
from qjoule.model.arrays import Anomalies


@dataclass
class Span:
    """A span of time up to now, with the counts at its beginning."""

    begin_ns: int
    loss_before: dict[str, int] = field(default_factory=dict)  #: records, by cause
    throttled_before: ThrottleCounts | None = None  #: None: show the last minute instead
    anomalies: Anomalies = field(default_factory=Anomalies)


class SpanFigures:
    """The current interval, and the time since the last reset (`total`).

    `loss`: counts lost records by cause since the stream began.
    """

    def __init__(
        self, begin_ns: int, loss: Callable[[], dict[str, int]], throttling: RecentCounts | None
    ) -> None:
        self._loss, self._throttling = loss, throttling
        self.interval = Span(begin_ns)
        self.total = Span(begin_ns, throttled_before=self._throttle_counts())

    def reset(self, now_ns: int) -> None:
        """Begins a new total."""
        self.total = Span(now_ns, self._loss(), self._throttle_counts())

    def next_interval(self, now_ns: int) -> None:
        self.interval = Span(now_ns, self._loss())

    def add_anomalies(self, anomalies: Anomalies) -> None:
        for span in (self.interval, self.total):
            span.anomalies.add(anomalies)

    def loss(self, span: Span) -> dict[str, int]:
        """Records lost in the span by cause, only causes that occurred."""
        return {
            cause: lost
            for cause, count in self._loss().items()
            if (lost := count - span.loss_before.get(cause, 0)) > 0
        }

    def throttled(self, span: Span) -> str:
        """Whether heat throttled CPUs since the last reset, or in the last minute: most intervals
        are too short to be read on a screen, or to be seen by who scrapes the agent."""
        if self._throttling is None:
            return ""
        if span.throttled_before is None:
            return throttled_note(self._throttling.recent(), "in the last minute")
        return throttled_note(span.throttled_before.until(self._throttling.newest()))

    def _throttle_counts(self) -> ThrottleCounts | None:
        return None if self._throttling is None else self._throttling.newest()
