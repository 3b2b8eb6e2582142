# SPDX-License-Identifier: Apache-2.0
"""Asks for the tags of queries twice: at once, and as a conversion of a capture does later."""

from __future__ import annotations

from typing import Any

from qjoule.tags.kept_calls import KeptCalls, kept_calls
from qjoule.tags.tagging import TagSource


def tags_either_way(
    source: TagSource, names: list[str | None], codes: Any, streams: Any, begins_ns: Any
) -> list[Any]:
    """Tags of queries, see `TagSource.tags_of`. Both ways must give the same."""
    source.poll()
    calls = source._calls
    with calls._lock:
        known = calls._sorted()
        keys, sets = calls._keys.names(), list(calls._tags)
        kept = KeptCalls(kept_calls(known, calls._until(known), keys, sets))
    later = kept.tags_of(names, codes, streams, begins_ns).to_pylist()
    at_once: list[Any] = source.tags_of(names, codes, streams, begins_ns).to_pylist()
    assert _sorted(later) == _sorted(at_once)
    return at_once


def _sorted(found: list[Any]) -> list[Any]:
    return [tags and sorted(tags) for tags in found]
