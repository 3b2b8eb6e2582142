# SPDX-License-Identifier: Apache-2.0
"""Reads tags that clients write into what they send to a server. Reading is strict: text that is
not entirely valid tags, or has too many or too long ones, has no tags.

- Comments of statements and commands, as sqlcommenter writes them: `key='value',key2='value2'`,
  percent-encoded, a quote with a backslash before it (https://google.github.io/sqlcommenter/spec/).
- Names of connections: `key=value,key2=value2`, percent-encoded (drivers/README.md).

Other places for tags differ by server and are read in ``servers/<server>/tags.py``.

A `traceparent` (W3C Trace Context) becomes the tags `trace` and `span`, as for calls that shims
report. A `tracestate` is for tracing systems and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote

from qjoule.tags.definitions import MAX_KEY, MAX_TAGS, MAX_VALUE, Tags

PREFIX = "qjoule."  #: prefix of attributes that are tags
_KEY = r"[A-Za-z0-9_.~%-]+"
_PAIR = rf"({_KEY})='((?:[^'\\\x00-\x1f]|\\')*)'"
_PAIRS = re.compile(rf"{_PAIR}(?:,{_PAIR})*")
_EACH = re.compile(_PAIR)
_NAME = re.compile(rf"{_KEY}=[A-Za-z0-9_.~%-]*(?:,{_KEY}=[A-Za-z0-9_.~%-]*)*")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@lru_cache(maxsize=4096)
def tags_in(comment: bytes) -> Tags:
    """Tags by key, from the text between a comment's delimiters.

    >>> tags_in(b"endpoint='check%20out',tenant='7'")
    (('endpoint', 'check out'), ('tenant', '7'))
    """
    text = comment.decode("latin-1")
    # A comment ends at its delimiter: the rest would belong to the statement.
    if not text.isascii() or "*/" in text or not _PAIRS.fullmatch(text):
        return ()
    pairs = _EACH.findall(text)
    return believed((unquote(key), unquote(value.replace("\\'", "'"))) for key, value in pairs)


@lru_cache(maxsize=4096)
def tags_in_name(name: str) -> Tags:
    """Tags by key, from the name of a connection.

    >>> tags_in_name("job=night%20ly,release=1.4")
    (('job', 'night ly'), ('release', '1.4'))
    """
    if not name.isascii() or not _NAME.fullmatch(name):
        return ()
    pairs = (pair.partition("=") for pair in name.split(","))
    return believed((unquote(key), unquote(value)) for key, _, value in pairs)


def believed(pairs: Iterable[tuple[str, str]]) -> Tags:
    """Tags by key, if all are within bounds; otherwise no tags."""
    tags: dict[str, str] = {}
    for key, value in pairs:
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE or len(tags) > MAX_TAGS:
            return ()
        tags[key] = value
    tags.pop("tracestate", None)
    if traced := _TRACEPARENT.fullmatch(tags.pop("traceparent", "")):
        tags["trace"], tags["span"] = traced.groups()
    return tuple(sorted(tags.items())) if len(tags) <= MAX_TAGS else ()
