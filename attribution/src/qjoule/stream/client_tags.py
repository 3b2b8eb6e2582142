# SPDX-License-Identifier: Apache-2.0
"""Tags that clients send to the server itself: on other hosts no shim can report their calls.

A statement's tags count more than its connection's of the same keys; those of a call that a shim
has reported count alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from qjoule.servers.decoding import TAG_READERS
from qjoule.stream.blocks import Frame
from qjoule.stream.statements import dialect_of
from qjoule.tags.definitions import Tags
from qjoule.tags.maps import TAGS

#: Comments of queries that have not ended; those told longest ago are forgotten.
MAX_QUERIES = 100_000
#: Comments and attributes by their hashes; those used longest ago are forgotten. The kernel sends
#: one again when it has forgotten it; it remembers a fourth of these (bpf/core/tags.bpf.h).
MAX_HASHES = 65_536

Numbers = NDArray[np.uint64]
#: Of each query which of the tags its connection has; code -1: none.
OfConnections = tuple[NDArray[np.int64], Sequence[Tags]]


class ClientTags:
    """Tags of queries, from when they are told."""

    def __init__(self) -> None:
        self._of_query: dict[int, Tags] = {}
        self._of_hash: dict[int, Tags] = {}

    def take(self, frame: Frame, *, of_queries: bool = True) -> bool:
        """Takes in a TEXT block; false if it is a statement's.

        `of_queries`: whether tags are asked for query by query; without, those of one query alone
        are of no use.
        """
        dialect = dialect_of(frame)
        if dialect not in TAG_READERS:
            return False
        record = frame.records[0]
        single = bool(record["single"])
        if of_queries or not single:
            self.add(int(record["shape"]), frame.text, dialect, single=single)
        return True

    def add(self, number: int, text: bytes, dialect: int, *, single: bool) -> None:
        """Takes in the text of a comment or of attributes.

        Args:
            number: the hash that queries which say this have; if `single`, one query's id.
            dialect: one of `servers.decoding.TAG_READERS`.
        """
        tags = TAG_READERS[dialect](text)
        if not tags:
            return
        known = self._of_query if single else self._of_hash
        known[number] = tags
        if len(known) > (MAX_QUERIES if single else MAX_HASHES):
            known.pop(next(iter(known)))

    def fill(
        self,
        called: pa.Array | None,
        queries: Numbers,
        hashes: Numbers,
        connections: OfConnections | None = None,
    ) -> pa.Array | None:
        """Tags of ended queries: their calls', where these have any, else what was said.

        Args:
            called: as the shims told; None: of no query.
            queries: (n,) ids.
            hashes: (n,) of what they say; 0 nothing.
            connections: tags of their connections; None: of none.
        """
        if connections is None and not self._of_query and not hashes.any():
            return called
        said = self._said(queries, hashes, connections)
        if said is None:
            return called
        if called is None:
            return said
        offsets = called.offsets.to_numpy(zero_copy_only=False)
        better = (np.diff(offsets) == 0) & said.is_valid().to_numpy(zero_copy_only=False)
        which = np.where(better, np.arange(len(said)) + len(said), np.arange(len(said)))
        return pa.concat_arrays([called.cast(TAGS), said]).take(pa.array(which))

    def _said(
        self, queries: Numbers, hashes: Numbers, connections: OfConnections | None
    ) -> pa.Array | None:
        """None: of no query."""
        codes, found = self.together(queries, hashes, connections)
        if not any(found):
            return None
        return pa.array([tags or None for tags in found], TAGS).take(pa.array(codes))

    def together(
        self, queries: Numbers, hashes: Numbers, connections: OfConnections | None = None
    ) -> tuple[NDArray[np.int64], list[Tags]]:
        """What queries say and their connections do, as of `fill`: codes, and tags."""
        known: list[Tags] = [()]
        stated = self._stated(queries, hashes, known)
        theirs, words = connections or (np.full(queries.size, -1, np.int64), ())
        every = (*words, ())  # the last one: of code -1
        pairs, codes = np.unique(stated * len(every) + theirs + 1, return_inverse=True)
        found = [
            _together(known[pair // len(every)], every[pair % len(every) - 1])
            for pair in pairs.tolist()
        ]
        return codes.reshape(-1), found

    def _stated(self, queries: Numbers, hashes: Numbers, known: list[Tags]) -> NDArray[np.int64]:
        """Of each query the place in `known` of what it says; adds what is not there."""
        uniques, codes = np.unique(hashes, return_inverse=True)
        places = np.zeros(uniques.size, np.int64)
        for at, number in enumerate(uniques.tolist()):
            tags = self._of_hash.pop(number, None)
            if tags is not None:
                self._of_hash[number] = tags  # used last
                places[at] = len(known)
                known.append(tags)
        stated: NDArray[np.int64] = places[codes.reshape(-1)]
        if self._of_query:
            for at, query in enumerate(queries.tolist()):
                tags = self._of_query.pop(query, None)
                if tags is not None:
                    stated[at] = len(known)
                    known.append(tags)
        return stated


def _together(statement: Tags, connection: Tags) -> Tags:
    if not (statement and connection):
        return statement or connection
    return tuple(sorted((dict(connection) | dict(statement)).items()))
