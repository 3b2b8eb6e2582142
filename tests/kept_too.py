# SPDX-License-Identifier: Apache-2.0
"""Asks for the tags of queries twice: at once, and as a conversion of a capture does later."""

from __future__ import annotations

from typing import Any

import numpy as np

from qjoule.tags.kept_calls import KeptCalls
from qjoule.tags.tagging import TagSource


def tags_either_way(
    source: TagSource, names: list[str | None], codes: Any, streams: Any, begins_ns: Any
) -> list[Any]:
    """Tags of queries, see `TagSource.tags_of`. Both ways must give the same."""
    source.poll()
    calls = source._calls
    with calls._lock:
        known = calls._sorted()
        every = np.ones(known.size, np.bool_)
        kept = KeptCalls(calls._as_kept(known, calls._until(known), every))
    later = kept.tags_of(names, codes, streams, begins_ns).to_pylist()
    at_once: list[Any] = source.tags_of(names, codes, streams, begins_ns).to_pylist()
    assert _sorted(later) == _sorted(at_once)
    return at_once


def _sorted(found: list[Any]) -> list[Any]:
    return [tags and sorted(tags) for tags in found]
