# SPDX-License-Identifier: Apache-2.0
"""The ids by which pt-query-digest and the server's own statistics know a statement."""

from __future__ import annotations

from collections.abc import Iterator

from qjoule.servers.decoding_types import Build
from qjoule.servers.mysql.checksum import NoChecksum, checksum
from qjoule.servers.mysql.digest import NoDigest, digest
from qjoule.servers.types import major_of
from qjoule.shapes.automaton import UNSURE
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.other_id import OtherId
from qjoule.shapes.reduction import reduce_statement

CHECKSUM, DIGEST = "pt_checksum", "mysql_digest"
_PERCONA = "pt-query-digest 3"
_FIRST_MAJOR = 8  #: the first with these digests: 5.7 and before have MD5
_CUT = "the statement is too long: only its beginning is known"
_UNSURE = "a setting that is not known decides what is a literal"


def ids_of(text: bytes, truncated: bool, build: Build) -> Iterator[OtherId]:
    """The checksum and the DIGEST of a statement, or why there is none."""
    reduced, cut = reduce_statement(text, Lexis.BACKTICK)
    why = _CUT if truncated or cut else _UNSURE if UNSURE in reduced else ""
    yield _checksum(text, reduced, why)
    yield _digest(reduced, why, build)


def _checksum(text: bytes, reduced: str, why: str) -> OtherId:
    if why:
        return OtherId(CHECKSUM, None, _PERCONA, why)
    try:
        return OtherId(CHECKSUM, checksum(text, reduced), _PERCONA)
    except NoChecksum as error:
        return OtherId(CHECKSUM, None, _PERCONA, str(error))


def _digest(reduced: str, why: str, build: Build) -> OtherId:
    of = f"{build.flavour} {build.version}".rstrip()
    if not why and not build.vocabulary:
        why = build.no_vocabulary or "its tokens were not read"
    if not why and (major_of(build.version) or 0) < _FIRST_MAJOR:
        why = f"versions before {_FIRST_MAJOR} have another kind of digest"
    if why:
        return OtherId(DIGEST, None, of, why)
    try:
        return OtherId(DIGEST, digest(reduced, build.vocabulary), of)
    except NoDigest as error:
        return OtherId(DIGEST, None, of, str(error))
