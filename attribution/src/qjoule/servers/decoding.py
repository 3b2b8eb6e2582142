# SPDX-License-Identifier: Apache-2.0
"""What decodes the data of each server, by its kind and by its dialects' numbers.

A server's folder has a module `decoding` with a `DECODING`. All are imported with this module:
a recorder opens no file once it has been confined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec

from qjoule.servers import registry
from qjoule.servers.decoding_types import Decoding, Language, References, Titles
from qjoule.tags.comments import tags_in
from qjoule.tags.definitions import Tags

_NOTHING = Decoding()


def _decoding(server: str) -> Decoding:
    """Of the server's folder; a server whose data nobody decodes has no such module."""
    module = f"qjoule.servers.{server}.decoding"
    if find_spec(module) is None:
        return _NOTHING
    found: Decoding = import_module(module).DECODING
    return found


_BY_NAME = {server: _decoding(server) for server in registry.servers()}
_BY_KIND = {one.kind: _BY_NAME[one.name] for one in registry.servers().values() if not one.of}

#: By number of the dialect: languages of statements.
LANGUAGES: Mapping[int, Language] = {
    number: language for one in _BY_NAME.values() for number, language in one.languages.items()
}
#: By number of the dialect: texts that are a query's tags, and what reads them.
TAG_READERS: Mapping[int, Callable[[bytes], Tags]] = {
    registry.dialect("tags"): tags_in,
    **{number: read for one in _BY_NAME.values() for number, read in one.tag_readers.items()},
}
#: How names of threads begin that work for requests, of any server.
SERVING_THREADS = tuple(name for one in _BY_NAME.values() for name in one.serving_threads)


def decoding_of(kind: int) -> Decoding:
    """What decodes the data of servers of a kind; of a kind that is not known it is empty."""
    return _BY_KIND.get(kind, _NOTHING)


class AllReferences:
    """`References` of all servers as one."""

    def __init__(self) -> None:
        makers = [one.references for one in _BY_NAME.values() if one.references is not None]
        self._all: list[References] = [make() for make in makers]

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """The text of a shape, once it has been made."""
        for one in self._all:
            one.learn(shape, dialect, text)

    def forget(self, shape: int) -> None:
        """The text of a shape will not be asked for again."""
        for one in self._all:
            one.forget(shape)

    def waits(self, text: bytes, dialect: int) -> bool:
        """Whether a text refers to one that has not come, which may yet come."""
        return any(one.waits(text, dialect) for one in self._all)

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """The text with what it refers to put in, and the dialect to read that by."""
        for one in self._all:
            text, dialect = one.statement(text, dialect)
        return text, dialect


def titled(kinds: Iterable[tuple[int, int]]) -> dict[int, Titles]:
    """Of (server's id, its kind): those whose processes have titles, by id."""
    found = {server: decoding_of(kind).titles for server, kind in kinds}
    return {server: titles for server, titles in found.items() if titles is not None}
