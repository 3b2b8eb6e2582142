# SPDX-License-Identifier: Apache-2.0
"""Computes the ids by which pt-query-digest and the server's own statistics know a statement.

The fingerprint of pt-query-digest is made by the rules that Percona publishes: percona-toolkit,
lib/QueryRewriter.pm `fingerprint` and Transformers.pm `make_checksum`. Their published test cases
are in the golden tests. The known differences come from starting with the lexed statement:
literals are found by the server's rules (so `'\\\\'` or a quote in a comment cannot derail it),
`--` needs a blank after it in MySQL, a comment leaves a blank, trailing whitespace is removed,
PostgreSQL's "names" are names, and the comment that marks Percona's own statements is ignored.

The tool works on a statement's raw text with regular expressions, so some statements derail it: a
quote within a string, an upper-case digit, a dash in front of a dash. Its versions differ there,
and a part of a literal may stay in its fingerprint. Such a statement gets no checksum here. For all
others `percona_fingerprint` takes the same text for structure, and the checksums are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from qjoule.lazy_import import hashlib
from qjoule.servers.decoding_types import Build
from qjoule.servers.mysql.digest import NoDigest, digest
from qjoule.servers.types import major_of
from qjoule.shapes.automaton import DIGITS_OF_NAME, NUMBER, PARAMETER, SECOND, STRING, UNSURE
from qjoule.shapes.rules import (
    PLAIN_MODES,
    Charset,
    Lexis,
    Quoting,
    backtick_rules,
    backtick_settings,
)
from qjoule.shapes.safe_text import text_of
from qjoule.shapes.shape import OtherId
from qjoule.shapes.sql import reduce_statement

_MYSQLDUMP = "SELECT /*!40001 SQL_NO_CACHE */ * FROM `"
_CALL = re.compile(r"(call\s++[^\s(]++)\(", re.IGNORECASE)
_USE = re.compile(r"use \S++\Z", re.IGNORECASE)
_HINT = re.compile(r"/\*\+[^*]*+(?:\*(?!/)[^*]*+)*(?:\*/)?")
_NUMBERS = re.compile(rf"[0-9+\-{NUMBER}][0-9a-f.xb+\-{NUMBER}{DIGITS_OF_NAME}]*+")
_LEFTOVERS = re.compile(r"[xb.+-]\?")
_MARKS = str.maketrans({STRING: "?", PARAMETER: "?"})
_CONSTANTS = re.compile(r"\b(?:null|true|false)\b")
_LISTS = re.compile(r"\b(in|values?)(?:[\s,]*+\([\s?,]*+\))+")
_MANY_ROWS = re.compile(r"(?:insert|replace)(?: ignore)?\s++into\b", re.IGNORECASE)
_VALUES = re.compile(r"values\s*+\(", re.IGNORECASE)
_ROW_ENDS = re.compile(r"\)\s*+,\s*+\(")
_UNION = re.compile(r"\sunion(?:\sall)?(?=\s)")
_SELECT = re.compile(r"\bselect\s")
_LIMIT = re.compile(r"\blimit \?(?:, ?\?| offset \?)?")
_ASCENDING = re.compile(r"\s++asc\b")
_SELECTS_TRIED = 8  #: selects per UNION branch; bounds the time for hostile statements


def percona_fingerprint(reduced: str) -> str:
    """Returns the fingerprint of a reduced statement, as safe text.

    A comment at the begin leaves a blank, as in the published rules: the rules for CALL, USE and
    many rows only apply at the very start.
    """
    if reduced.startswith(_MYSQLDUMP):
        return "mysqldump"
    if call := _CALL.match(reduced):
        return text_of(call[1].translate(_MARKS)).lower()
    if _USE.match(reduced.removesuffix(";").rstrip()):
        return "use ?"
    text = _HINT.sub("", _first_row(reduced)).lstrip(" ")
    text = _LEFTOVERS.sub("?", _NUMBERS.sub("?", text.translate(_MARKS)))
    text = _CONSTANTS.sub("?", " ".join(text_of(text).lower().split(" ")))
    text = _unions(_LISTS.sub(r"\1(?+)", re.sub(" {2,}", " ", text)))
    text = _LIMIT.sub("limit ?", text, count=1)
    head, order_by, tail = text.partition("order by ")
    return head + order_by + _ASCENDING.sub("", tail) if order_by else text


def percona_checksum(fingerprint: str) -> str:
    """Returns pt-query-digest's query id: the MD5, in upper case. Versions before 3 show its last
    16 digits."""
    digest = hashlib.md5(fingerprint.encode("utf-8", "replace"), usedforsecurity=False)
    return digest.hexdigest().upper()


def _first_row(reduced: str) -> str:
    """Cuts INSERT ... VALUES (...), (...) after its first row, as the published rule does."""
    if not _MANY_ROWS.match(reduced):
        return reduced
    values = _VALUES.search(reduced)
    ends = _ROW_ENDS.search(reduced, values.end()) if values else None
    return reduced[: ends.start() + 1] if ends else reduced


def _unions(text: str) -> str:
    """Merges equal branches of a UNION: `select ? /*repeat union*/`."""
    unions = list(_UNION.finditer(text))
    if not unions:
        return text
    starts = [0, *(union.end() + 1 for union in unions)]
    ends = [*(union.start() for union in unions), len(text)]
    out: list[str] = []
    branch = 0
    while branch < len(starts):
        part = text[starts[branch] : ends[branch]]
        repeats, rest = _repeats(text, part, starts, ends, branch)
        while repeats:
            branch += repeats
            out.append(f"{part} /*repeat{unions[branch - 1][0]}*/")
            part = rest
            repeats, rest = _repeats(text, part, starts, ends, branch)
        out.append(part)
        if branch < len(unions):
            out.append(unions[branch][0] + " ")
        branch += 1
    return "".join(out)


def _repeats(
    text: str, part: str, starts: list[int], ends: list[int], branch: int
) -> tuple[int, str]:
    """Counts following branches that begin with a select at the end of `part`; returns the rest."""
    for tried, select in enumerate(_SELECT.finditer(part)):
        if tried == _SELECTS_TRIED:
            break
        piece = part[select.start() :]
        repeats = 0
        while branch + repeats + 1 < len(starts):
            following = branch + repeats + 1
            if not text.startswith(piece, starts[following]):
                break
            repeats += 1
            if ends[following] - starts[following] != len(piece):
                break
        if repeats:
            last = branch + repeats
            return repeats, text[starts[last] + len(piece) : ends[last]]
    return 0, ""


_LINE_COMMENT = re.compile(r"(?:--|#)[^'\"\r\n]*+(?=[\r\n]|\Z)")
_STRING = re.compile(r"'[^']*+'|\"[^\"]*+\"")
#: A number with a letter that the tool expects in lower case.
_LOUD_NUMBER = re.compile(r"(?<![A-Za-z0-9_$`\x80-\xff])[0-9.]++[0-9a-fxb.+-]*+[A-Z]")
_DASHES = re.compile(r"--(?=[^\s])")
_OF_TOOLKIT = re.compile(r"/\*\w++\.\w++:[0-9]/[0-9]\*/")
_WHITE = " \t\n\r\f\v"


class NoChecksum(Exception):
    """The checksum is not certain; the text gives the reason."""


def checksum(text: bytes, reduced: str) -> str:
    """Returns the checksum of a whole statement; `reduced` is the same without literals.

    Raises:
        NoChecksum: the tool may find other literals.
    """
    raw = text.decode("latin-1")
    if _OF_TOOLKIT.search(raw):
        raise NoChecksum("the tool takes it for a statement of its own toolkit")
    plain = _LINE_COMMENT.sub("", _without_comments(raw))
    if "\\" in plain or plain.count("'") + plain.count('"') != 2 * reduced.count(STRING):
        raise NoChecksum("the tool's versions differ on its quotes")
    bare = _STRING.sub("?", plain)
    if len(_ROW_ENDS.findall(bare)) != len(_ROW_ENDS.findall(plain)):
        raise NoChecksum("the tool takes a part of a string for the end of a row")
    if _LOUD_NUMBER.search(bare) or _DASHES.search(raw):
        raise NoChecksum("the tool takes a part of a number for a name, or an operator for a note")
    if not bare.isascii() and not _stays_in_lower_case(bare):
        raise NoChecksum("it has a name whose lower case depends on a character set")
    end = " " if plain.removesuffix("\n")[-1:] in tuple(_WHITE) else ""
    return percona_checksum(percona_fingerprint(reduced) + end)


def _without_comments(raw: str) -> str:
    """Removes /* ... */, but keeps code in such comments."""
    out, at = [], 0
    while (begins := raw.find("/*", at)) >= 0:
        if raw.startswith("!", begins + 2):
            out.append(raw[at : begins + 3])
            at = begins + 3
            continue
        ends = raw.find("*/", begins + 3)
        if ends < 0:
            break
        out.append(raw[at:begins])
        at = ends + 2
    return "".join(out) + raw[at:]


def _stays_in_lower_case(bare: str) -> bool:
    try:
        text = bare.encode("latin-1").decode()
    except UnicodeDecodeError:
        return False
    non_ascii = "".join(character for character in text if not character.isascii())
    return non_ascii == non_ascii.lower()


CHECKSUM, DIGEST = "pt_checksum", "mysql_digest"
_PERCONA = "pt-query-digest 3"
_FIRST_MAJOR = 8  #: first version with these digests: earlier ones have MD5
_CUT = "the statement is too long: only its beginning is known"
_UNSURE = "a setting that is not known decides what is a literal"
#: Quoting rules that are possible if settings are unknown.
_READINGS = {
    Quoting.UNKNOWN: (Quoting.STRINGS, Quoting.NAMES, Quoting.PLAIN, Quoting.PLAIN_NAMES),
    Quoting.ESCAPES: (Quoting.STRINGS, Quoting.NAMES),
    Quoting.PLAIN: (Quoting.PLAIN_NAMES,),
}
_TWO_BYTES = (Charset.UNKNOWN, Charset.SJIS, Charset.GBK, Charset.BIG5)
_NOT_ASCII = re.compile(rf"[\x80-\xff{SECOND}]")


def ids_of(text: bytes, truncated: bool, rules: int, build: Build) -> Iterator[OtherId]:
    """Yields the checksum and the DIGEST of a statement, or why there is none.

    `rules`: number of its session's settings (`qjoule.shapes.rules`).
    """
    reduced, cut = reduce_statement(text, Lexis.BACKTICK, rules)
    why = _CUT if truncated or cut else _UNSURE if UNSURE in reduced else ""
    yield _checksum(text, why)
    yield _digest(reduced, why or _why_unsure(text, reduced, rules), rules, build)


def _why_unsure(text: bytes, reduced: str, rules: int) -> str:
    """Returns why the server's tokens are uncertain, by unknown or unsupported settings."""
    quoting, charset = backtick_settings(rules)
    readings = (backtick_rules(reading, charset) for reading in _READINGS.get(quoting, ()))
    if any(reduce_statement(text, Lexis.BACKTICK, reading)[0] != reduced for reading in readings):
        return _UNSURE
    if charset in _TWO_BYTES and _NOT_ASCII.search(reduced):
        return "it has names in a character set of which a character may have two bytes"
    return ""


def _checksum(text: bytes, why: str) -> OtherId:
    if why:
        return OtherId(CHECKSUM, None, _PERCONA, why)
    # The tool knows no session: double quotes enclose strings, as by default.
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
