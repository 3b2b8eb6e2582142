"""Tags in the comment of a command, as sqlcommenter writes them: `key='value',key2='value2'`.

Only the whole of such a comment is read: any other is not for us, and is not kept. Keys and values
are percent-encoded (https://google.github.io/sqlcommenter/spec/).
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from qjoule.tags.definitions import MAX_KEY, MAX_TAGS, MAX_VALUE, Tags

#: Comments of queries that have not ended; those told longest ago are forgotten.
MAX_COMMENTS = 100_000
_PAIR = r"([A-Za-z0-9_.~%-]+)='((?:[^'\\\x00-\x1f]|\\')*)'"
_PAIRS = re.compile(rf"{_PAIR}(?:,{_PAIR})*")
_EACH = re.compile(_PAIR)
_MAP = pa.map_(pa.string(), pa.string())


@lru_cache(maxsize=4096)
def tags_in(comment: bytes) -> Tags:
    """Tags by key; none if it is anything but tags, or too many or too long ones.

    >>> tags_in(b"endpoint='check%20out',tenant='7'")
    (('endpoint', 'check out'), ('tenant', '7'))
    """
    text = comment.decode("latin-1")
    if not text.isascii() or not _PAIRS.fullmatch(text):
        return ()
    found = {unquote(key): unquote(value.replace("\\'", "'")) for key, value in _EACH.findall(text)}
    if len(found) > MAX_TAGS or any(
        not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE for key, value in found.items()
    ):
        return ()
    return tuple(sorted(found.items()))


class Comments:
    """Tags of queries by their ids, from when they are told until the query has ended."""

    def __init__(self) -> None:
        self._tags: dict[int, Tags] = {}

    def add(self, query: int, comment: bytes) -> None:
        """Takes in the comment of a query."""
        tags = tags_in(comment)
        if not tags:
            return
        self._tags[query] = tags
        if len(self._tags) > MAX_COMMENTS:
            self._tags.pop(next(iter(self._tags)))

    def fill(self, tags: pa.Array | None, queries: NDArray[np.uint64]) -> pa.Array | None:
        """Tags of ended queries: those that are known from their calls, else from comments."""
        if not self._tags:
            return tags
        said = [self._tags.pop(query, None) for query in queries.tolist()]
        if not any(said):
            return tags
        commented = pa.array(said, _MAP)
        if tags is None:
            return commented
        known = tags.is_valid()
        which = pa.array(np.where(known, np.arange(len(tags)), np.arange(len(tags)) + len(tags)))
        return pa.concat_arrays([tags.cast(_MAP), commented]).take(which)
