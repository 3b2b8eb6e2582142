# SPDX-License-Identifier: Apache-2.0
"""The ids by which pt-query-digest and the server's own statistics know a statement."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qjoule.servers.decoding_types import Build
from qjoule.servers.mysql.checksum import NoChecksum, checksum
from qjoule.servers.mysql.digest import NoDigest, digest
from qjoule.servers.types import major_of
from qjoule.shapes.automaton import SECOND, UNSURE
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.rules import (
    PLAIN_MODES,
    Charset,
    Quoting,
    backtick_rules,
    backtick_settings,
)
from qjoule.shapes.shape import OtherId
from qjoule.shapes.sql import reduce_statement

CHECKSUM, DIGEST = "pt_checksum", "mysql_digest"
_PERCONA = "pt-query-digest 3"
_FIRST_MAJOR = 8  #: the first with these digests: 5.7 and before have MD5
_CUT = "the statement is too long: only its beginning is known"
_UNSURE = "a setting that is not known decides what is a literal"
#: What is left open by settings that are not known.
_READINGS = {
    Quoting.UNKNOWN: (Quoting.STRINGS, Quoting.NAMES, Quoting.PLAIN, Quoting.PLAIN_NAMES),
    Quoting.ESCAPES: (Quoting.STRINGS, Quoting.NAMES),
    Quoting.PLAIN: (Quoting.PLAIN_NAMES,),
}
_TWO_BYTES = (Charset.UNKNOWN, Charset.SJIS, Charset.GBK, Charset.BIG5)
_NOT_ASCII = re.compile(rf"[\x80-\xff{SECOND}]")


def ids_of(text: bytes, truncated: bool, rules: int, build: Build) -> Iterator[OtherId]:
    """The checksum and the DIGEST of a statement, or why there is none.

    `rules`: number of its session's settings (`qjoule.shapes.rules`).
    """
    reduced, cut = reduce_statement(text, Lexis.BACKTICK, rules)
    why = _CUT if truncated or cut else _UNSURE if UNSURE in reduced else ""
    yield _checksum(text, why)
    yield _digest(reduced, why or _why_unsure(text, reduced, rules), rules, build)


def _why_unsure(text: bytes, reduced: str, rules: int) -> str:
    """Why the server's tokens are not certain, by settings that are not known or not followed."""
    quoting, charset = backtick_settings(rules)
    readings = (backtick_rules(one, charset) for one in _READINGS.get(quoting, ()))
    if any(reduce_statement(text, Lexis.BACKTICK, one)[0] != reduced for one in readings):
        return _UNSURE
    if charset in _TWO_BYTES and _NOT_ASCII.search(reduced):
        return "it has names in a character set of which a character may have two bytes"
    return ""


def _checksum(text: bytes, why: str) -> OtherId:
    if why:
        return OtherId(CHECKSUM, None, _PERCONA, why)
    # The tool knows no session: it takes what double quotes enclose for a string, as by default.
    reduced, _ = reduce_statement(text, Lexis.BACKTICK)
    try:
        return OtherId(CHECKSUM, checksum(text, reduced), _PERCONA)
    except NoChecksum as error:
        return OtherId(CHECKSUM, None, _PERCONA, str(error))


def _digest(reduced: str, why: str, rules: int, build: Build) -> OtherId:
    of = f"{build.flavour} {build.version}".rstrip()
    if not why and not build.vocabulary:
        why = build.no_vocabulary or "its tokens were not read"
    if not why and (major_of(build.version) or 0) < _FIRST_MAJOR:
        why = f"versions before {_FIRST_MAJOR} have another kind of digest"
    if why:
        return OtherId(DIGEST, None, of, why)
    try:
        plain = bool(rules & PLAIN_MODES)
        return OtherId(DIGEST, digest(reduced, build.vocabulary, plain_modes=plain), of)
    except NoDigest as error:
        return OtherId(DIGEST, None, of, str(error))
