# SPDX-License-Identifier: Apache-2.0
"""Passes the families to the process that listens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from qjoule.metrics.families import Family, Sample
from qjoule.metrics.shared import SharedBytes


class Board(SharedBytes):
    """Made before the fork; the engine `show`s, the other process `read`s."""

    def show(self, families: Iterable[Family], now_s: float, stale_s: float) -> bool:
        """Replaces what is shown. False if it does not fit: then the last one stays.

        `now_s`: of the monotonic clock. After `stale_s` without another the engine is not well.
        """
        listed = [
            [one.name, one.kind, one.help, one.unit, [_values(s) for s in one.samples]]
            for one in families
        ]
        return self.put(json.dumps([now_s, stale_s, listed], separators=(",", ":")).encode())

    def read(self) -> tuple[float, float, list[Family]] | None:
        """When it was shown, when it is stale, and the families; None if there is nothing."""
        content = self.get()
        if content is None:
            return None
        now_s, stale_s, listed = json.loads(content)
        return now_s, stale_s, [_family(*one) for one in listed]


def _values(sample: Sample) -> tuple[object, ...]:
    return sample.labels, sample.value, sample.created, sample.buckets, sample.count, sample.octaves


def _family(name: str, kind: str, about: str, unit: str, samples: list[list[Any]]) -> Family:
    return Family(name, kind, about, unit, [_sample(*one) for one in samples])


def _sample(labels: list[list[str]], *rest: Any) -> Sample:
    return Sample(tuple((name, of) for name, of in labels), *rest)
