# SPDX-License-Identifier: Apache-2.0
"""The shape of a statement in any language that a server speaks."""

from __future__ import annotations

from functools import lru_cache

from qjoule.servers import registry
from qjoule.servers.decoding import LANGUAGES, decoding_of
from qjoule.shapes.shape import TEXT_LENGTH, Shape, shape_of

__all__ = ["TEXT_LENGTH", "Shape", "fingerprint", "summary", "summary_of"]

EMPTY = "(empty)"  #: no statement at all, or nothing but a comment
_CACHED_BYTES = 16384  #: longer statements are not kept in the cache


def fingerprint(
    text: bytes,
    dialect: int,
    truncated: bool = False,
    length: int = TEXT_LENGTH,
    rules: int | None = None,
) -> Shape:
    """The shape of a statement.

    `text` may be any bytes. `truncated`: the statement continued after them; the shape then ends in
    an ellipsis. `rules`: the number of the session's settings (`qjoule.shapes.rules`); None: what
    the server has by default. `length` bounds the text in characters; the id is of the whole text.
    If a statement's structure alone is longer than 32,768 characters, it counts as truncated
    there. Takes time linear in the length of the text. Raises KeyError for a number that belongs to
    no language.
    """
    if len(text) > _CACHED_BYTES:
        return _shape(text, dialect, truncated, length, rules)
    return _cached_shape(text, dialect, truncated, length, rules)


def summary(shape: Shape) -> str:
    """OpenTelemetry's `db.query.summary` of a shape, at most 255 characters."""
    if shape.text == EMPTY:
        return ""
    return LANGUAGES[shape.dialect].summary(shape.text)


def summary_of(flavour: str, text: str) -> str:
    """The same of a shape's text, by the server that ran it. Empty: its language is not known."""
    try:
        languages = decoding_of(registry.server_of(flavour).kind).languages
    except KeyError:
        return ""
    return next((language.summary(text) for language in languages.values()), "")


def _shape(text: bytes, dialect: int, truncated: bool, length: int, rules: int | None) -> Shape:
    language = LANGUAGES[dialect]
    if language.follows_rules:
        whole, truncated = language.shape(text, truncated, rules=rules)
    else:
        whole, truncated = language.shape(text, truncated)
    return shape_of(whole or EMPTY, truncated, dialect, length)


_cached_shape = lru_cache(maxsize=1024)(_shape)
