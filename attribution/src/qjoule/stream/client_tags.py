# SPDX-License-Identifier: Apache-2.0
"""Tags that clients send to the server itself, in comments or attributes.

They also work from other hosts, where no shim can report calls. If a statement and its connection
have tags of the same key, the statement's tag wins. If a shim reported the call, only the shim's
tags count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qjoule.lazy_import import pa
from qjoule.servers.decoding import TAG_READERS
from qjoule.stream.blocks import Frame
from qjoule.stream.names import dialect_of
from qjoule.tags.definitions import Tags
from qjoule.tags.joins import tags_type

#: Tags of queries that have not ended. Beyond this number the oldest are forgotten.
MAX_QUERIES = 100_000
#: Comments and attributes by their hashes. Beyond this number the least recently used are
#: forgotten. The kernel side remembers a quarter as many (bpf/core/tags.bpf.h) and sends a text
#: again once it has forgotten it.
MAX_HASHES = 65_536
Numbers = NDArray[np.uint64]
#: For each query, the index of its connection's tags (-1: none); and the tags.
OfConnections = tuple[NDArray[np.int64], Sequence[Tags]]


@dataclass(frozen=True)
class Tagged:
    """Tags that a client sent; `number`: their hash, or the id of the single query."""

    number: int
    tags: Tags
    single: bool


class ClientTags:
    """Keeps tags from the block that brings them until the query has ended."""

    def __init__(self, on_tags: Callable[[Tagged], object] = lambda _tagged: None) -> None:
        """`on_tags` is called with all tags that are taken in."""
        self._on_tags = on_tags
        self._of_query: dict[int, Tags] = {}
        self._of_hash: dict[int, Tags] = {}

    def take(self, frame: Frame, *, of_queries: bool = True) -> bool:
        """Takes in a TEXT block. Returns false if it holds a statement.

        `of_queries`: whether the caller asks for tags query by query. If not, tags of a single
        query are dropped.
        """
        dialect = dialect_of(frame)
        if dialect not in TAG_READERS:
            return False
        record = frame.records[0]
        single = bool(record["single"])
        if of_queries or not single:
            self.add(int(record["shape"]), frame.text, dialect, single=single)
        return True

    def learn(self, tagged: Tagged) -> None:
        """Takes in tags that were read before."""
        tags_by_number = self._of_query if tagged.single else self._of_hash
        tags_by_number[tagged.number] = tagged.tags
        if len(tags_by_number) > (MAX_QUERIES if tagged.single else MAX_HASHES):
            tags_by_number.pop(next(iter(tags_by_number)))
        self._on_tags(tagged)

    def add(self, number: int, text: bytes, dialect: int, *, single: bool) -> None:
        """Takes in the text of a comment or of attributes.

        Args:
            number: the hash that queries with this text carry; if `single`, the id of one query.
            dialect: one of `servers.decoding.TAG_READERS`.
        """
        if tags := TAG_READERS[dialect](text):
            self.learn(Tagged(number, tags, single))

    def fill(
        self,
        called: pa.Array | None,
        queries: Numbers,
        hashes: Numbers,
        connections: OfConnections | None = None,
    ) -> pa.Array | None:
        """Tags of ended queries: the shim's tags where there are any, else those sent to the
        server.

        Args:
            called: tags that shims reported; None: no query has any.
            queries: (n,) ids.
            hashes: (n,) hashes of the queries' comments or attributes; 0: none.
            connections: tags of their connections; None: no connection has any.
        """
        if connections is None and not self._of_query and not hashes.any():
            return called
        sent = self._sent_tags(queries, hashes, connections)
        if sent is None:
            return called
        if called is None:
            return sent
        offsets = called.offsets.to_numpy(zero_copy_only=False)
        better = (np.diff(offsets) == 0) & sent.is_valid().to_numpy(zero_copy_only=False)
        which = np.where(better, np.arange(len(sent)) + len(sent), np.arange(len(sent)))
        return pa.concat_arrays([called.cast(tags_type()), sent]).take(pa.array(which))

    def _sent_tags(
        self, queries: Numbers, hashes: Numbers, connections: OfConnections | None
    ) -> pa.Array | None:
        """The tags sent to the server; None: no query has any."""
        codes, tag_sets = self.together(queries, hashes, connections)
        if not any(tag_sets):
            return None
        return pa.array([tags or None for tags in tag_sets], tags_type()).take(pa.array(codes))

    def of_hash(self, number: int) -> Tags:
        """The tags with this hash; empty if they are not known (any more)."""
        return self._of_hash.get(number, ())

    def together(
        self, queries: Numbers, hashes: Numbers, connections: OfConnections | None = None
    ) -> tuple[NDArray[np.int64], list[Tags]]:
        """Merges the tags of queries and of their connections, as `fill` does: codes, and tags."""
        query_tags: list[Tags] = [()]
        stated = self._tag_codes(queries, hashes, query_tags)
        theirs, connection_tags = connections or (np.full(queries.size, -1, np.int64), ())
        every = (*connection_tags, ())  # the last entry is for code -1
        pairs, codes = np.unique(stated * len(every) + theirs + 1, return_inverse=True)
        merged = [
            _merged(query_tags[pair // len(every)], every[pair % len(every) - 1])
            for pair in pairs.tolist()
        ]
        return codes.reshape(-1), merged

    def _tag_codes(
        self, queries: Numbers, hashes: Numbers, query_tags: list[Tags]
    ) -> NDArray[np.int64]:
        """For each query, the index of its tags in `query_tags`, which gets those it lacks."""
        uniques, codes = np.unique(hashes, return_inverse=True)
        places = np.zeros(uniques.size, np.int64)
        for place, number in enumerate(uniques.tolist()):
            tags = self._of_hash.pop(number, None)
            if tags is not None:
                self._of_hash[number] = tags  # now the most recently used
                places[place] = len(query_tags)
                query_tags.append(tags)
        stated: NDArray[np.int64] = places[codes.reshape(-1)]
        if self._of_query:
            for place, query in enumerate(queries.tolist()):
                tags = self._of_query.pop(query, None)
                if tags is not None:
                    stated[place] = len(query_tags)
                    query_tags.append(tags)
        return stated


def _merged(statement: Tags, connection: Tags) -> Tags:
    if not (statement and connection):
        return statement or connection
    return tuple(sorted((dict(connection) | dict(statement)).items()))
