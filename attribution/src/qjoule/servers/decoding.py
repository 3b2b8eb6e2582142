# SPDX-License-Identifier: Apache-2.0
"""Finds the decoder of a server's data, by the server's kind or by a dialect's number, and computes
the shape of a statement in any server's language.

A server's folder has a module `wire` with a `DECODING`. All are imported together with this
module, because a recorder cannot open files once it is confined.

The kernel side sends `struct qj_unseen` (bpf/qjoule.h) in place of an unknown text. Each
statement of each session that was prepared before tracing began gets its own row, so that one
that takes much energy stands out. Lost texts have a row per cause.

On request, statements also get the ids of the tools that a server's administrators use: computed
from the statement (`Language.ids`), or reported by the server (`Decoding.reported_ids`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from qjoule.contract import UNSEEN, NoText
from qjoule.model.labels import PREPARED_BEFORE, TEXT_LOST
from qjoule.servers import registry
from qjoule.servers.decoding_types import (
    Build,
    Decoding,
    Language,
    PlanStep,
    References,
    Titles,
)
from qjoule.servers.types import Server
from qjoule.shapes.shape import TEXT_LENGTH, OtherId, Shape, shape_of
from qjoule.tags.definitions import Tags, tags_in

_UNNAMED = (1 << 64) - 1
_NUMBERS = 1 << 32  #: servers count from 0; a hash of a name is rarely smaller than this
_NO_TEXT_CAUSES = {
    NoText.SEVERAL: "different statements in one request",
    NoText.MESSAGE: "its message could not be read",
    NoText.NONE: "the server has none of that name",
    NoText.EARLIER: "its portal was opened before tracing began",
}
EMPTY = "(empty)"  #: no statement, or only a comment
_CACHED_BYTES = 16384  #: longer statements are not kept in the cache


def unseen_text(text: bytes) -> str:
    """Returns the placeholder for an unknown text."""
    if len(text) != UNSEEN.itemsize:
        return TEXT_LOST
    session, statement = np.frombuffer(text, UNSEEN)[0].tolist()
    if not session:
        cause = _NO_TEXT_CAUSES.get(statement)
        return f"{TEXT_LOST[:-1]}: {cause})" if cause else TEXT_LOST
    if statement == _UNNAMED:
        which = "the unnamed statement"
    elif statement < _NUMBERS:
        which = f"statement {statement}"
    else:
        which = f"statement 0x{statement:016x}"
    return f"{PREPARED_BEFORE[:-1]}: {which} of session {session})"


_UNSEEN_LANGUAGE = Language(
    shape=lambda text, truncated: (unseen_text(text), truncated), summary=str
)


_NOTHING = Decoding()


def _decoding(server: str) -> Decoding:
    """Returns the decoder in a server's folder; an empty one if there is no module `wire`."""
    folder = find_spec(f"qjoule.servers.{server}")
    module = f"qjoule.servers.{server}.wire"
    if folder is None or not folder.submodule_search_locations or find_spec(module) is None:
        return _NOTHING
    decoding: Decoding = import_module(module).DECODING
    return decoding


_BY_NAME = {server: _decoding(server) for server in registry.servers()}
_BY_KIND = {s.kind: _BY_NAME[s.name] for s in registry.servers().values() if not s.of}

#: Languages of statements, by the dialect's number.
LANGUAGES: Mapping[int, Language] = {
    registry.dialect("unseen"): _UNSEEN_LANGUAGE,
    **{number: language for d in _BY_NAME.values() for number, language in d.languages.items()},
}
#: Readers of texts that hold a query's tags, by the dialect's number.
TAG_READERS: Mapping[int, Callable[[bytes], Tags]] = {
    registry.dialect("tags"): tags_in,
    **{number: read for d in _BY_NAME.values() for number, read in d.tag_readers.items()},
}
#: Readers of texts that hold an id of a shape, by the dialect's number.
TOLD_IDS: Mapping[int, Callable[[bytes], tuple[int, OtherId] | None]] = {
    number: read for d in _BY_NAME.values() for number, read in d.reported_ids.items()
}
#: Prefixes of the names of threads that work for requests, of all servers.
SERVING_THREADS = tuple(name for d in _BY_NAME.values() for name in d.serving_threads)

#: Functions of all servers that do avoidable work, by its kind.
AVOIDABLE = {
    word: frozenset(name for d in _BY_NAME.values() for name in d.avoidable.get(word, ()))
    for word in sorted({word for d in _BY_NAME.values() for word in d.avoidable})
}

#: Functions of all servers that execute a plan, including their callees.
EXECUTES = frozenset(name for d in _BY_NAME.values() for name in d.executes)

_PLAN_STEPS = tuple(d.plan_step for d in _BY_NAME.values() if d.plan_step is not None)


def plan_step(function: str) -> PlanStep | None:
    """Returns what a function of any server shows of a plan; None: nothing."""
    return next((step for of in _PLAN_STEPS if (step := of(function)) is not None), None)


@cache
def kinds_of(dialect: int) -> frozenset[int]:
    """Returns the kinds of servers whose statements have this dialect."""
    return frozenset(kind for kind, decoding in _BY_KIND.items() if dialect in decoding.languages)


def decoding_of(kind: int) -> Decoding:
    """Returns the decoder for servers of a kind; empty for an unknown kind."""
    return _BY_KIND.get(kind, _NOTHING)


def decoding_of_flavour(flavour: str) -> Decoding:
    """Returns the decoder for a product; empty for an unknown one."""
    server = registry.flavours().get(flavour)
    return _NOTHING if server is None else decoding_of(server.kind)


class AllReferences:
    """Combines the `References` of all servers."""

    def __init__(self) -> None:
        makers = [
            decoding.references for decoding in _BY_NAME.values() if decoding.references is not None
        ]
        self._all: list[References] = [make() for make in makers]

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """Stores the text of a shape."""
        for references in self._all:
            references.learn(shape, dialect, text)

    def forget(self, shape: int) -> None:
        """Drops the text of a shape, which will not be needed again."""
        for references in self._all:
            references.forget(shape)

    def waits(self, text: bytes, dialect: int) -> bool:
        """Returns true if a text refers to another one that may still arrive."""
        return any(references.waits(text, dialect) for references in self._all)

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """Returns the text with its references filled in, and the dialect to read it by."""
        for references in self._all:
            text, dialect = references.statement(text, dialect)
        return text, dialect


def titled(kinds: Iterable[tuple[int, int]]) -> dict[int, Titles]:
    """Returns how to read process titles, by server id, from pairs (id, kind)."""
    by_server = {server: decoding_of(kind).titles for server, kind in kinds}
    return {server: titles for server, titles in by_server.items() if titles is not None}


MAX_TEXT_BYTES = 1 << 16  #: longer statements get no computed ids


class OtherIds:
    """Finds other tools' ids of statements, for the traced servers."""

    def __init__(self, servers: Iterable[Server]) -> None:
        builds = {
            (server.kind, server.flavour, server.version): Build(
                server.flavour, server.version, server.vocabulary, server.no_vocabulary
            )
            for server in servers
        }
        self._builds = [(kind, build) for (kind, _, _), build in sorted(builds.items())]

    def of(self, text: bytes, dialect: int, truncated: bool, rules: int) -> tuple[OtherId, ...]:
        """Returns the ids of a statement, which may be any bytes, for each traced version.

        `rules`: number of its session's settings (`qjoule.shapes.rules`); 0: unknown.
        """
        compute = LANGUAGES[dialect].ids
        if compute is None:
            return ()
        cut = truncated or len(text) > MAX_TEXT_BYTES
        kinds = kinds_of(dialect)
        ids = (
            other_id
            for kind, build in self._builds
            if kind in kinds
            for other_id in compute(text[:MAX_TEXT_BYTES], cut, rules, build)
        )
        return tuple(dict.fromkeys(ids))

    def read(self, text: bytes, dialect: int) -> tuple[int, OtherId] | None:
        """Reads a shape's hash and its id as reported by the server; None: it is another text."""
        read = TOLD_IDS.get(dialect)
        return None if read is None else read(text)


def fingerprint(
    text: bytes,
    dialect: int,
    truncated: bool = False,
    length: int = TEXT_LENGTH,
    rules: int | None = None,
) -> Shape:
    """Returns the shape of a statement.

    `text` may be any bytes. `truncated`: the statement continued after them; the shape then ends in
    an ellipsis. `rules`: the number of the session's settings (`qjoule.shapes.rules`); None: what
    the server's default. `length` bounds the text in characters; the id is of the whole text. If a
    statement's structure alone is longer than 32,768 characters, it counts as truncated there.
    Takes time linear in the length of the text. Raises KeyError for a number of no language.
    """
    if len(text) > _CACHED_BYTES:
        return _shape_of_text(text, dialect, truncated, length, rules)
    return _cached_shape(text, dialect, truncated, length, rules)


def summary(shape: Shape) -> str:
    """Returns OpenTelemetry's `db.query.summary` of a shape, at most 255 characters."""
    if shape.text == EMPTY:
        return ""
    return LANGUAGES[shape.dialect].summary(shape.text)


def summary_of(flavour: str, text: str) -> str:
    """Returns the summary of a shape's text, by its server; empty for an unknown language."""
    try:
        languages = decoding_of(registry.server_of(flavour).kind).languages
    except KeyError:
        return ""
    return next((language.summary(text) for language in languages.values()), "")


def _shape_of_text(
    text: bytes, dialect: int, truncated: bool, length: int, rules: int | None
) -> Shape:
    language = LANGUAGES[dialect]
    if language.follows_rules:
        whole, truncated = language.shape(text, truncated, rules=rules)
    else:
        whole, truncated = language.shape(text, truncated)
    return shape_of(whole or EMPTY, truncated, dialect, length)


_cached_shape = lru_cache(maxsize=1024)(_shape_of_text)
