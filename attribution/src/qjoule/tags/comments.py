# SPDX-License-Identifier: Apache-2.0
"""Tags as clients write them into what they send to a server, read strictly: what is not all tags,
or has too many or too long ones, is none at all.

- Comments of statements and commands, as sqlcommenter writes them: `key='value',key2='value2'`,
  percent-encoded, a quote with a backslash before it (https://google.github.io/sqlcommenter/spec/).
- Names of connections: `key=value,key2=value2`, percent-encoded (drivers/README.md).

What else carries tags to a server is its own (``servers/<server>/tags.py``).

Of a `traceparent` (W3C Trace Context) the tags are `trace` and `span`, as they are of calls that
shims tell of; a `tracestate` is for tracing systems and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote

from qjoule.tags.definitions import MAX_KEY, MAX_TAGS, MAX_VALUE, Tags

PREFIX = "qjoule."  #: of names of attributes that are tags
_KEY = r"[A-Za-z0-9_.~%-]+"
_PAIR = rf"({_KEY})='((?:[^'\\\x00-\x1f]|\\')*)'"
_PAIRS = re.compile(rf"{_PAIR}(?:,{_PAIR})*")
_EACH = re.compile(_PAIR)
_NAME = re.compile(rf"{_KEY}=[A-Za-z0-9_.~%-]*(?:,{_KEY}=[A-Za-z0-9_.~%-]*)*")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@lru_cache(maxsize=4096)
def tags_in(comment: bytes) -> Tags:
    """Tags by key, of what stands within a comment's signs.

    >>> tags_in(b"endpoint='check%20out',tenant='7'")
    (('endpoint', 'check out'), ('tenant', '7'))
    """
    text = comment.decode("latin-1")
    # A comment ends where its sign is: what lies behind is the statement's.
    if not text.isascii() or "*/" in text or not _PAIRS.fullmatch(text):
        return ()
    pairs = _EACH.findall(text)
    return believed((unquote(key), unquote(value.replace("\\'", "'"))) for key, value in pairs)


@lru_cache(maxsize=4096)
def tags_in_name(name: str) -> Tags:
    """Tags by key, of what a connection is called.

    >>> tags_in_name("job=night%20ly,release=1.4")
    (('job', 'night ly'), ('release', '1.4'))
    """
    if not name.isascii() or not _NAME.fullmatch(name):
        return ()
    pairs = (pair.partition("=") for pair in name.split(","))
    return believed((unquote(key), unquote(value)) for key, _, value in pairs)


def believed(pairs: Iterable[tuple[str, str]]) -> Tags:
    """Tags by key, if all are within bounds; otherwise none."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE or len(found) > MAX_TAGS:
            return ()
        found[key] = value
    found.pop("tracestate", None)
    if traced := _TRACEPARENT.fullmatch(found.pop("traceparent", "")):
        found["trace"], found["span"] = traced.groups()
    return tuple(sorted(found.items())) if len(found) <= MAX_TAGS else ()
