"""Tags as clients write them into what they send to a server, read strictly: what is not all tags,
or has too many or too long ones, is none at all.

- Comments of SQL statements and of MongoDB's commands, as sqlcommenter writes them:
  `key='value',key2='value2'`, percent-encoded, a quote with a backslash before it
  (https://google.github.io/sqlcommenter/spec/).
- MySQL's query attributes with names `qjoule.KEY` that are strings or whole numbers (MySQL Source
  Code Documentation, "COM_QUERY", "Binary Protocol Value").
- Entries of CQL\'s custom payloads with keys `qjoule.KEY` (native_protocol_v4.spec, 2.2).
- Names of connections: `key=value,key2=value2`, percent-encoded (drivers/README.md).

Of a `traceparent` (W3C Trace Context) the tags are `trace` and `span`, as they are of calls that
shims tell of; a `tracestate` is for tracing systems and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from urllib.parse import unquote

from qjoule.contract import Dialect
from qjoule.tags.definitions import MAX_KEY, MAX_TAGS, MAX_VALUE, Tags

PREFIX = "qjoule."  #: of names of attributes that are tags
_KEY = r"[A-Za-z0-9_.~%-]+"
_PAIR = rf"({_KEY})='((?:[^'\\\x00-\x1f]|\\')*)'"
_PAIRS = re.compile(rf"{_PAIR}(?:,{_PAIR})*")
_EACH = re.compile(_PAIR)
_NAME = re.compile(rf"{_KEY}=[A-Za-z0-9_.~%-]*(?:,{_KEY}=[A-Za-z0-9_.~%-]*)*")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

# include/field_types.h
_STRINGS = {15, 252, 253, 254}  #: VARCHAR, BLOB, VAR_STRING, STRING
#: Bytes of numbers: TINY, SHORT, LONG, LONGLONG, INT24, YEAR.
_NUMBERS = {1: 1, 2: 2, 3: 4, 8: 8, 9: 4, 13: 2}
_NULL_TYPE = 6
_UNSIGNED = 0x80  #: in the byte behind a type


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
    return _believed((unquote(key), unquote(value.replace("\\'", "'"))) for key, value in pairs)


@lru_cache(maxsize=4096)
def tags_in_name(name: str) -> Tags:
    """Tags by key, of what a connection is called.

    >>> tags_in_name("job=night%20ly,release=1.4")
    (('job', 'night ly'), ('release', '1.4'))
    """
    if not name.isascii() or not _NAME.fullmatch(name):
        return ()
    pairs = (pair.partition("=") for pair in name.split(","))
    return _believed((unquote(key), unquote(value)) for key, _, value in pairs)


@lru_cache(maxsize=4096)
def tags_in_attributes(block: bytes) -> Tags:
    """Tags by key, of query attributes as they are sent, from their count to their last value.

    Those of other names are left out; values of other kinds than strings and whole numbers make
    all unreadable.
    """
    try:
        return _believed(_attributes(block))
    except IndexError:
        return ()


@lru_cache(maxsize=4096)
def tags_in_payload(block: bytes) -> Tags:
    """Tags by key, of entries of a custom payload as they are sent, without their count.

    Of entries of one key the last one counts, as at the server; those without a value are left out.
    """
    try:
        return _believed(_entries(block))
    except IndexError:
        return ()


#: Of texts that are such, and what reads them.
DIALECTS: dict[Dialect, Callable[[bytes], Tags]] = {
    Dialect.TAGS: tags_in,
    Dialect.ATTRIBUTES: tags_in_attributes,
    Dialect.PAYLOAD: tags_in_payload,
}


def tags_of_attributes(attributes: Iterable[tuple[bytes, bytes]]) -> Tags:
    """Tags by key, of attributes of a connection; those of other names are left out."""
    pairs = ((key.decode("utf-8", "replace"), value) for key, value in attributes)
    return _believed(
        (key.removeprefix(PREFIX), value.decode("utf-8", "replace"))
        for key, value in pairs
        if key.startswith(PREFIX)
    )


def _believed(pairs: Iterable[tuple[str, str]]) -> Tags:
    found: dict[str, str] = {}
    for key, value in pairs:
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE or len(found) > MAX_TAGS:
            return ()
        found[key] = value
    found.pop("tracestate", None)
    if traced := _TRACEPARENT.fullmatch(found.pop("traceparent", "")):
        found["trace"], found["span"] = traced.groups()
    return tuple(sorted(found.items())) if len(found) <= MAX_TAGS else ()


def _attributes(block: bytes) -> Iterable[tuple[str, str]]:
    """Raises IndexError for what is cut off, or is no string."""
    count = block[0]
    nulls = (count + 7) // 8
    if count > MAX_TAGS or block[1] != 1 or block[2 + nulls] != 1:
        raise IndexError
    names: list[str] = []
    kinds: list[tuple[int, int]] = []
    at = 3 + nulls
    for _ in range(count):
        kinds.append((block[at], block[at + 1]))
        word, at = _counted(block, at + 2)
        names.append(word.decode("utf-8", "replace"))
    for number, (name, (kind, flags)) in enumerate(zip(names, kinds, strict=True)):
        if kind == _NULL_TYPE or block[2 + number // 8] >> number % 8 & 1:
            continue
        value, at = _value(block, at, kind, signed=not flags & _UNSIGNED)
        if name.startswith(PREFIX):
            yield name.removeprefix(PREFIX), value
    if at != len(block):
        raise IndexError


def _entries(block: bytes) -> Iterable[tuple[str, str]]:
    """Raises IndexError for what is cut off."""
    while block:
        name, block = _sized(block, 2)
        value, block = _sized(block, 4)
        if name and value is not None and name.startswith(PREFIX.encode()):
            key = name.decode("utf-8", "replace").removeprefix(PREFIX)
            yield key, value.decode("utf-8", "replace")


def _sized(block: bytes, width: int) -> tuple[bytes | None, bytes]:
    """[string] or [bytes], whose length has so many bytes, None for no value; and what follows."""
    size = int.from_bytes(block[:width], "big", signed=width > 2)
    end = width + max(size, 0)
    if end > len(block):
        raise IndexError
    return None if size < 0 else block[width:end], block[end:]


def _value(block: bytes, at: int, kind: int, *, signed: bool) -> tuple[str, int]:
    """As text, and where it ends."""
    if kind in _STRINGS:
        data, at = _counted(block, at)
        return data.decode("utf-8", "replace"), at
    size = _NUMBERS.get(kind, len(block))
    if at + size > len(block):
        raise IndexError
    return str(int.from_bytes(block[at : at + size], "little", signed=signed)), at + size


def _counted(block: bytes, at: int) -> tuple[bytes, int]:
    """A length-encoded string, and where it ends."""
    size, at = block[at], at + 1
    if size == 0xFC:
        size, at = block[at] | block[at + 1] << 8, at + 2
    elif size > 0xFA:
        raise IndexError
    if at + size > len(block):
        raise IndexError
    return block[at : at + size], at + size
