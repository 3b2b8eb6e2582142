# SPDX-License-Identifier: Apache-2.0
"""Statements with secrets between all their tokens, and which of these are in literals as a server
reads them: sql/sql_lex.cc of MySQL and MariaDB, PostgreSQL's scan.l, Cassandra's Lexer.g.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

SECRET = re.compile("zq[0-9]+z|735[0-9]+")
#: What may stand between tokens, and what a value is. `@` becomes a secret word, `%` secret digits.
_GAPS = [" ", "\n", "\r", "\t\v", "@", "%", "-- @ '\n", "--@'\n", "--'", "/* @ ' */", "/*", "*/"]
_GAPS += ["/* /* ' */ @ ' */", '"@\'@"', "//", "// @'\n", "- ", "\x01", "\x7f%", "$", ", ", "'"]
_MYSQL_GAPS = ["#@'\n", "/*!40000 @ */", "/*!40000 ,'@' */", "/*!99999 @ ' */", "/*+ @'*/", "*"]
_MYSQL_GAPS += ["/*M!100101 ,'@'*/", "/*M!999999 @'*/", "/*!50799 @'*/", "/*!100100 @'*/", "/*!"]
_MYSQL_GAPS += ["/*!080000 @'*/", "/*!12345", "/*! @ */", "`@'`", "--\xa0@'\n", "\xa0%"]
_MYSQL_GAPS += ["/*!99999 /*'*/ @'*/"]
_STANDARD_GAPS = ["$$", "$a$", "$\x01$", "a$$", "E", "U&", "x", "$1"]
_VALUES = ["'@'", "'@''@'", "'@' '@'", "'@'\n'@'", "%", "1.%e-3", "0x%", "-%", ".%", "'@\\'@'"]
_VALUES += ["'\\'"]
_MYSQL_VALUES = ['"@"', '"@\\"@"', "N'@'", "x'41'", "b'1\\'", "_utf8'@'"]
_STANDARD_VALUES = ["E'@\\'@'", "E'@'\n'\\'@'", "E'@' '\\'", "E'@' -- '\n'\\'@'", "$$@'@$$"]
_STANDARD_VALUES += ["$a$@$a$", "U&'@\\'", "b'\\'"]


@dataclass(frozen=True)
class Grammar:
    """What a server takes for one token; a group `literal` is that. `skips`: decides by the number
    of a version comment whether the server leaves it out.
    """

    gaps: list[str]
    values: list[str]
    tokens: re.Pattern[str]
    skips: Callable[[str, int], bool] | None = None
    nests: bool = False


_STRING = r"'(?:[^']|'')*+(?:'|\Z)"
_ESCAPED = r"'(?:[^'\\]|''|\\[\s\S]|\\\Z)*+(?:'|\Z)"
_IN_DOUBLE = _ESCAPED.replace("'", '"')
_NAME = r'"(?:[^"]|"")*+(?:"|\Z)'
_NUMBER = r"0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_LINE_BREAK = r"(?:[ \t\f\v]|--[^\n\r]*)*[\n\r](?:\s|--[^\n\r]*[\n\r])*"
_BLOCK = r"(?P<block>/\*)"
_MYSQL_TOKENS = (
    r"(?:--(?=[\x00-\x20\x7fBLANK])|#)[^\n]*|(?P<version>/\*M?!)|"
    rf"{_BLOCK}|`(?:[^`]|``)*+`?"
    r"|[0-9]*[A-Za-z_$LETTERS][\w$LETTERS]*+(?:\.[\w$LETTERS]++)*"
    rf"|(?P<literal>{_ESCAPED}|{_IN_DOUBLE}|{_NUMBER})"
)
_POSTGRES_TOKENS = (
    rf"--[^\n\r]*|{_BLOCK}|{_NAME}|\$[0-9]+|(?P<literal>[eE]{_ESCAPED}(?:{_LINE_BREAK}{_ESCAPED})*+"
    rf"|{_STRING}|\$(?P<tag>(?:[A-Za-z_\x80-\xff][0-9A-Za-z_\x80-\xff]*)?)\$[\s\S]*?"
    rf"(?:\$(?P=tag)\$|\Z)|{_NUMBER})|[A-Za-z_\x80-\xff][\w$\x80-\xff]*+"
)
_CQL_TOKENS = (
    rf"(?:--|//)[^\n\r]*|{_BLOCK}|{_NAME}|(?P<literal>{_STRING}|\$\$[\s\S]*?(?:\$\$|\Z)|{_NUMBER})"
    r"|[A-Za-z]\w*"
)


def _mysql(tokens: str, skips: Callable[[str, int], bool]) -> Grammar:
    pattern = re.compile(tokens, re.A)
    return Grammar(_GAPS + _MYSQL_GAPS, _VALUES + _MYSQL_VALUES, pattern, skips)


def _mariadb_skips(mark: str, number: int) -> bool:
    return number > 101100 or (mark == "!" and 50700 <= number <= 99999)


def _mysql_skips(mark: str, number: int) -> bool:
    return number > 80033 or mark == "M!"


_LATIN1 = _MYSQL_TOKENS.replace("BLANK", r"\xa0").replace("LETTERS", r"\xc0-\xff")
_UTF8 = _MYSQL_TOKENS.replace("BLANK", "").replace("LETTERS", r"\x80-\xff")
_GAPS_STANDARD, _VALUES_STANDARD = _GAPS + _STANDARD_GAPS, _VALUES + _STANDARD_VALUES
MARIADB, MARIADB_LATIN1 = _mysql(_UTF8, _mariadb_skips), _mysql(_LATIN1, _mariadb_skips)
MYSQL = _mysql(_UTF8, _mysql_skips)
POSTGRES = Grammar(_GAPS_STANDARD, _VALUES_STANDARD, re.compile(_POSTGRES_TOKENS, re.A), nests=True)
CQL = Grammar(_GAPS_STANDARD, _VALUES_STANDARD, re.compile(_CQL_TOKENS, re.A))


@st.composite
def statements(draw: st.DrawFn, grammar: Grammar) -> str:
    """A SELECT of values; each character is a byte."""
    gaps = st.lists(st.sampled_from(grammar.gaps), max_size=3).map("".join)
    values = st.tuples(gaps, st.sampled_from(grammar.values), gaps).map("".join)
    text = "select " + ",".join(draw(st.lists(values, min_size=1, max_size=4)))
    numbers = iter(range(100, 999))
    return re.sub(
        "[@%]", lambda mark: ("zq{}z" if mark[0] == "@" else "735{}").format(next(numbers)), text
    )


def secrets_in(grammar: Grammar, text: str) -> set[str]:
    """The secrets that are in literals."""
    return {secret for literal in _literals(grammar, text) for secret in SECRET.findall(literal)}


def _literals(grammar: Grammar, text: str) -> Iterator[str]:
    at, version_open = 0, False
    while at < len(text):
        if version_open and text.startswith("*/", at):
            at, version_open = at + 2, False
            continue
        token = grammar.tokens.match(text, at)
        groups = token.groupdict() if token else {}
        at = token.end() if token and token.end() > at else at + 1
        if groups.get("literal"):
            yield groups["literal"]
        elif groups.get("block"):
            at = _comment_end(text, at, depth=99 if grammar.nests else 0)
        elif groups.get("version") and grammar.skips:
            number = re.compile("[0-9]{5,6}").match(text, at)
            mark = groups["version"][2:]
            if mark == "M!" and grammar.skips(mark, 0):
                at = _comment_end(text, at, depth=0)
            elif number and grammar.skips(mark, int(number[0])):
                at = _comment_end(text, number.end(), depth=1)
            else:
                at, version_open = number.end() if number else at, True


def _comment_end(text: str, at: int, depth: int) -> int:
    """Where a comment ends in which others may nest, so many deep."""
    while at < len(text) and not text.startswith("*/", at):
        nested = depth and text.startswith("/*", at)
        at = _comment_end(text, at + 2, depth - 1) if nested else at + 1
    return at + 2
