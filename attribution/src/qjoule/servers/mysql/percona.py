# SPDX-License-Identifier: Apache-2.0
r"""The fingerprint of pt-query-digest, by the rules that Percona publishes.

Rules: percona-toolkit, lib/QueryRewriter.pm `fingerprint` and Transformers.pm `make_checksum`.
Their published test cases are in the golden tests. There are known differences, all because this
starts from the lexed statement: literals are found by the server's rules (so `'\\'` or a quote in a
comment cannot derail it), `--` needs a blank after it in MySQL, a comment leaves a blank, trailing
whitespace is removed, PostgreSQL's "names" are names, and the comment that marks Percona's own
statements is ignored.
"""

from __future__ import annotations

import re

from qjoule.lazy_import import hashlib
from qjoule.shapes.automaton import DIGITS_OF_NAME, NUMBER, PARAMETER, STRING
from qjoule.shapes.safe_text import text_of

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
_SELECTS_TRIED = 8  #: per UNION branch; bounds the time for hostile statements


def percona_fingerprint(reduced: str) -> str:
    """The fingerprint of a reduced statement, as safe text.

    A comment in front leaves a blank, as in the published rules: those for CALL, USE and many rows
    hold only at the very start.
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
    """pt-query-digest's query id: the MD5, in upper case. Versions before 3 show its last 16
    digits.
    """
    digest = hashlib.md5(fingerprint.encode("utf-8", "replace"), usedforsecurity=False)
    return digest.hexdigest().upper()


def _first_row(reduced: str) -> str:
    """INSERT ... VALUES (...), (...) up to the end of its first row, as the published rule does."""
    if not _MANY_ROWS.match(reduced):
        return reduced
    values = _VALUES.search(reduced)
    ends = _ROW_ENDS.search(reduced, values.end()) if values else None
    return reduced[: ends.start() + 1] if ends else reduced


def _unions(text: str) -> str:
    """Equal branches of a UNION as one: `select ? /*repeat union*/`."""
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
    """How many following branches begin with a select at the end of `part`, and what follows."""
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
