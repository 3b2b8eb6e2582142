# SPDX-License-Identifier: Apache-2.0
"""The ids and texts by which MySQL and pt-query-digest know a statement."""

from __future__ import annotations

from dataclasses import dataclass

from qjoule.servers.mysql.dialect import LEXIS
from qjoule.servers.mysql.digest import digest_like, digest_text
from qjoule.servers.mysql.percona import percona_checksum, percona_fingerprint
from qjoule.shapes.folding import values_folded
from qjoule.shapes.safe_text import ended, shorten
from qjoule.shapes.shape import TEXT_LENGTH
from qjoule.shapes.sql import reduced_sql
from qjoule.shapes.tokens import tokens

_DIGEST_CONSTANTS = frozenset({"null"})  #: MySQL's digest keeps TRUE and FALSE


@dataclass(frozen=True)
class OtherIds:
    """All texts are safe to print and of bounded length; the ids are of the whole texts."""

    digest_text: str  #: like MySQL's DIGEST_TEXT
    digest_like: str  #: SHA-256 of the whole digest text; equals no server's DIGEST
    pt_fingerprint: str  #: by pt-query-digest's published rules
    pt_checksum: str  #: pt-query-digest's query id, without its 0x


def other_ids(text: bytes, truncated: bool = False, length: int = TEXT_LENGTH) -> OtherIds:
    """Of a statement, which may be any bytes; `truncated`: it went on after them.

    `length` bounds the texts in characters.
    """
    reduced, truncated = reduced_sql(text, truncated, LEXIS)
    digest_tokens = values_folded(tokens(reduced, LEXIS), LEXIS, _DIGEST_CONSTANTS)
    digest = ended(digest_text(digest_tokens), truncated)
    percona = ended(percona_fingerprint(reduced), truncated)
    return OtherIds(
        digest_text=shorten(digest, length),
        digest_like=digest_like(digest),
        pt_fingerprint=shorten(percona, length),
        pt_checksum=percona_checksum(percona),
    )
