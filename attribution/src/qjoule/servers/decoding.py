# SPDX-License-Identifier: Apache-2.0
"""Finds the decoder of a server's data, by the server's kind or by a dialect's number.

A server's folder has a module `wire` with a `DECODING`. All are imported together with this
module, because a recorder cannot open files once it is confined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from qjoule.servers import registry, unseen
from qjoule.servers.decoding_types import Decoding, Language, References, Titles
from qjoule.shapes.shape import OtherId
from qjoule.tags.comments import tags_in
from qjoule.tags.definitions import Tags

_NOTHING = Decoding()


def _decoding(server: str) -> Decoding:
    """From the server's folder. A server whose data is not decoded has no such module."""
    module = f"qjoule.servers.{server}.wire"
    if find_spec(module) is None:
        return _NOTHING
    found: Decoding = import_module(module).DECODING
    return found


_BY_NAME = {server: _decoding(server) for server in registry.servers()}
_BY_KIND = {one.kind: _BY_NAME[one.name] for one in registry.servers().values() if not one.of}

#: Languages of statements, by the dialect's number.
LANGUAGES: Mapping[int, Language] = {
    registry.dialect("unseen"): unseen.LANGUAGE,
    **{number: language for one in _BY_NAME.values() for number, language in one.languages.items()},
}
#: Readers of texts that hold a query's tags, by the dialect's number.
TAG_READERS: Mapping[int, Callable[[bytes], Tags]] = {
    registry.dialect("tags"): tags_in,
    **{number: read for one in _BY_NAME.values() for number, read in one.tag_readers.items()},
}
#: Readers of texts that hold an id of a shape, by the dialect's number.
TOLD_IDS: Mapping[int, Callable[[bytes], tuple[int, OtherId] | None]] = {
    number: read for one in _BY_NAME.values() for number, read in one.told_ids.items()
}
#: Prefixes of the names of threads that work for requests, of all servers.
SERVING_THREADS = tuple(name for one in _BY_NAME.values() for name in one.serving_threads)
#: Causes of background threads' work by prefixes of their roles, of all servers.
_CAUSES = {prefix: cause for one in _BY_NAME.values() for prefix, cause in one.causes.items()}


@cache
def kinds_of(dialect: int) -> frozenset[int]:
    """The kinds of servers whose statements have this dialect."""
    return frozenset(kind for kind, one in _BY_KIND.items() if dialect in one.languages)


@cache
def causes_of(role: str) -> tuple[str, ...]:
    """The flags of a background row: what of queries causes this role's work, if it is known."""
    return tuple(cause for prefix, cause in _CAUSES.items() if role.startswith(prefix))


def decoding_of(kind: int) -> Decoding:
    """The decoder for servers of a kind; empty for an unknown kind."""
    return _BY_KIND.get(kind, _NOTHING)


class AllReferences:
    """The `References` of all servers as one."""

    def __init__(self) -> None:
        makers = [one.references for one in _BY_NAME.values() if one.references is not None]
        self._all: list[References] = [make() for make in makers]

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """Takes the text of a shape, once it is known."""
        for one in self._all:
            one.learn(shape, dialect, text)

    def forget(self, shape: int) -> None:
        """The text of this shape will not be needed again."""
        for one in self._all:
            one.forget(shape)

    def waits(self, text: bytes, dialect: int) -> bool:
        """Whether a text refers to another one that has not arrived but still may."""
        return any(one.waits(text, dialect) for one in self._all)

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """The text with its references filled in, and the dialect to read the result by."""
        for one in self._all:
            text, dialect = one.statement(text, dialect)
        return text, dialect


def titled(kinds: Iterable[tuple[int, int]]) -> dict[int, Titles]:
    """From pairs (server's id, its kind): the servers whose processes have titles, by id."""
    found = {server: decoding_of(kind).titles for server, kind in kinds}
    return {server: titles for server, titles in found.items() if titles is not None}
