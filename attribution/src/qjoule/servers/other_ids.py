# SPDX-License-Identifier: Apache-2.0
"""Ids of statements in the tools that a server's administrators use, if the user asks for them.

Each server's folder says which there are, and how each is found: computed from a statement
(`Language.ids`), or told by the server (`Decoding.told_ids`).
"""

from __future__ import annotations

from collections.abc import Iterable

from qjoule.servers.decoding import LANGUAGES, TOLD_IDS, kinds_of
from qjoule.servers.decoding_types import Build
from qjoule.servers.types import Server
from qjoule.shapes.shape import OtherId

MAX_TEXT_BYTES = 1 << 16  #: of a statement that ids are computed of


class OtherIds:
    """Finds the ids of statements, for the servers that are traced."""

    def __init__(self, servers: Iterable[Server]) -> None:
        builds = {
            (server.kind, server.flavour, server.version): Build(
                server.flavour, server.version, server.vocabulary, server.no_vocabulary
            )
            for server in servers
        }
        self._builds = [(kind, build) for (kind, _, _), build in sorted(builds.items())]

    def of(self, text: bytes, dialect: int, truncated: bool, rules: int) -> tuple[OtherId, ...]:
        """The ids of a statement, which may be any bytes, on each version that is traced.

        `rules`: number of its session's settings (`qjoule.shapes.rules`); 0: none is known.
        """
        compute = LANGUAGES[dialect].ids
        if compute is None:
            return ()
        cut = truncated or len(text) > MAX_TEXT_BYTES
        kinds = kinds_of(dialect)
        found = (
            one
            for kind, build in self._builds
            if kind in kinds
            for one in compute(text[:MAX_TEXT_BYTES], cut, rules, build)
        )
        return tuple(dict.fromkeys(found))

    def told(self, text: bytes, dialect: int) -> tuple[int, OtherId] | None:
        """A shape's hash and an id of it that its server has told; None: it is something else."""
        read = TOLD_IDS.get(dialect)
        return None if read is None else read(text)
