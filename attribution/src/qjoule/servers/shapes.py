"""A statement's shape: its text without literals, and the ids of that text.

Why no SQL parser (sqlglot, sqlparse): both need a whole statement and build trees or token lists
of unbounded size, neither keeps going on a cut statement in time linear in its length, and neither
could guarantee that it takes the same bytes for literals as the kernel's hash. Shapes are computed
from what the shared automaton emits (:mod:`qjoule.shapes.automaton`), which gives that guarantee.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from qjoule.contract import Dialect
from qjoule.servers.cassandra.dialect import constants_folded, id_shape
from qjoule.servers.mongodb.dialect import mongodb_shape
from qjoule.servers.mysql.digest import digest_like, digest_text
from qjoule.servers.mysql.percona import percona_checksum, percona_fingerprint
from qjoule.servers.redis.dialect import redis_shape
from qjoule.shapes.lists import lists_collapsed, values_folded
from qjoule.shapes.reduction import reduce_statement
from qjoule.shapes.rendering import render
from qjoule.shapes.safe_text import ELLIPSIS, sanitise, shorten
from qjoule.shapes.summary import summary_of
from qjoule.shapes.tokens import strip_ellipsis, tokens

TEXT_LENGTH = 4096  #: characters of a shape's texts, unless another length is asked for
_DIGEST_CONSTANTS = frozenset({"null"})  #: MySQL's digest keeps TRUE and FALSE
_CACHED_BYTES = 16384  #: longer statements are not kept in the cache


@dataclass(frozen=True)
class Shape:
    """A statement without its literals. All texts are safe to print and of bounded length.

    `fingerprint` is qjoule's own id: 16 hex digits, BLAKE2b-64 of the whole shape text in UTF-8.
    """

    fingerprint: str
    text: str
    digest_text: str  #: like MySQL's DIGEST_TEXT
    mysql_digest_like: str  #: SHA-256 of the whole digest text; equals no server's DIGEST
    pt_fingerprint: str  #: by pt-query-digest's published rules
    pt_checksum: str  #: pt-query-digest's query id, without its 0x
    truncated: bool
    dialect: Dialect


def fingerprint(
    text: bytes, dialect: Dialect, truncated: bool = False, length: int = TEXT_LENGTH
) -> Shape:
    """The shape of a statement.

    `text` may be any bytes; `truncated` says that the statement went on after them, and then the
    shape ends in an ellipsis. `length` bounds the texts in characters; ids are of the whole texts.
    A statement whose structure alone is longer than REDUCED_MAX characters counts as truncated
    there. Takes time linear in the length of the text.
    """
    if len(text) > _CACHED_BYTES:
        return _shape(text, dialect, truncated, length)
    return _cached_shape(text, dialect, truncated, length)


def summary(shape: Shape) -> str:
    """OpenTelemetry's `db.query.summary` of a shape, at most 255 characters."""
    return summary_of(shape.text, shape.dialect)


def _shape(text: bytes, dialect: Dialect, truncated: bool, length: int) -> Shape:
    if dialect is Dialect.REDIS:
        return _of_no_sql(redis_shape(text, truncated), dialect, truncated, length)
    if dialect is Dialect.MONGODB:
        return _of_no_sql(mongodb_shape(text), dialect, truncated, length)
    if dialect is Dialect.VOLTDB:
        name = _ended(text.decode("latin-1"), truncated)
        return _of_no_sql(name, dialect, truncated, length)
    if dialect is Dialect.CQL_ID:
        return _of_no_sql(id_shape(text), dialect, truncated, length)
    lexed = Dialect.POSTGRES if dialect is Dialect.CQL else dialect
    reduced, cut = reduce_statement(text, lexed)
    if dialect is Dialect.CQL:
        reduced = constants_folded(reduced)
    reduced, stripped = strip_ellipsis(reduced)
    truncated = truncated or cut or stripped
    folded = values_folded(tokens(reduced, lexed))
    digest_tokens = values_folded(tokens(reduced, lexed), _DIGEST_CONSTANTS)
    shape_text = _ended(render(lists_collapsed(folded, truncated), lexed), truncated)
    digest = _ended(digest_text(digest_tokens, lexed), truncated)
    percona = _ended(percona_fingerprint(reduced), truncated)
    return Shape(
        fingerprint=hashlib.blake2b(shape_text.encode(), digest_size=8).hexdigest(),
        text=shorten(shape_text, length),
        digest_text=shorten(digest, length),
        mysql_digest_like=digest_like(digest),
        pt_fingerprint=shorten(percona, length),
        pt_checksum=percona_checksum(percona),
        truncated=truncated,
        dialect=dialect,
    )


def _of_no_sql(named: str, dialect: Dialect, truncated: bool, length: int) -> Shape:
    """Commands of other languages have one text, and no id of another tool's."""
    shape_text = sanitise(named)
    shown = shorten(shape_text, length)
    return Shape(
        fingerprint=hashlib.blake2b(shape_text.encode(), digest_size=8).hexdigest(),
        text=shown,
        digest_text=shown,
        mysql_digest_like="",
        pt_fingerprint=shown,
        pt_checksum="",
        truncated=truncated,
        dialect=dialect,
    )


def _ended(text: str, truncated: bool) -> str:
    return text.rstrip(" " + ELLIPSIS) + ELLIPSIS if truncated else text.rstrip(" ")


_cached_shape = lru_cache(maxsize=1024)(_shape)
