# SPDX-License-Identifier: Apache-2.0
"""Which statements of a user may be repeated on a server in use: those that only read.

The check goes by the tokens of the server's own lexical rules, and refuses what it does not know:
other functions than those listed for the servers, and all unusual quoting.
It is the first of three: the statements run in a READ ONLY transaction and under a time limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from qjoule.api import QjouleError
from qjoule.api.command import sanitise, shorten
from qjoule.api.servers import (
    LANGUAGES,
    RAW_COMMENT,
    RAW_STAR,
    RAW_TAG,
    Kind,
    Token,
    fingerprint,
    reduce_statement,
    registry,
    tokens,
)
from qjoule_studies.reading import functions

MOST_BYTES, MOST_LINES, MOST_LINE = 4 << 20, 2000, 64 << 10
_FIRST = frozenset({"select", "show", "with", "values", "table", "("})
_WORDS = """
insert update delete merge truncate create alter drop grant revoke into outfile dumpfile copy call
do execute prepare lock share handler load import vacuum analyze analyse
"""
#: Words of statements that write, lock or run other code, wherever they stand.
_WRITES = frozenset(_WORDS.split())
_BEFORE_PARENTHESES = """
all and any array as between bigint binary bit by case cast char character cube decimal distinct
double else except exists filter float from group having in index int integer intersect interval is
join key lateral like limit not numeric offset on or order over partition recursive rollup row
select sets signed some table then time timestamp unary union unsigned using values varbinary
varchar varying when where window with within
"""
#: Keywords and types, which are no functions.
_NO_CALLS = frozenset(_BEFORE_PARENTHESES.split())
#: Quotes and comments whose end depends on the server's settings or on what it decodes first.
_ODD = {
    "a comment": re.compile(r"--|/\*|#"),
    "a backslash": re.compile(r"\\"),
    "a name or string in code points (U&)": re.compile(r"[uU]&\s*['\"]"),
    "a string in dollar quotes": re.compile(r"\$\w*\$"),
}


@dataclass(frozen=True)
class Statement:
    """A statement to repeat, with its shape."""

    sql: str
    fingerprint: str
    text: str


@dataclass(frozen=True)
class Chosen:
    """Statements that may be repeated, one of each shape, and why others may not."""

    statements: tuple[Statement, ...]
    refused: tuple[str, ...]
    missing: tuple[str, ...]  #: shapes of the trace without a statement, by text


def why_not(sql: str, dialect: int) -> str:
    """Why a statement may not be repeated; empty: it may."""
    lexis = LANGUAGES[dialect].lexis
    if lexis is None:
        return "it is not SQL"
    if odd := next((oddity for oddity, sign in _ODD.items() if sign.search(sql)), ""):
        return f"it holds {odd}, also if in a string"
    reduced, cut = reduce_statement(sql.encode(), lexis)
    if cut or any(mark in reduced for mark in (RAW_TAG, RAW_COMMENT, RAW_STAR)):
        return "it cannot be understood to its end"
    all_tokens = tokens(reduced, lexis)
    while all_tokens and all_tokens[-1].text == ";":
        all_tokens.pop()
    if not all_tokens:
        return "it is empty"
    return _structure(all_tokens) or _forbidden(all_tokens, functions(dialect))


def _structure(all_tokens: Sequence[Token]) -> str:
    signs = [token.text for token in all_tokens if token.kind is Kind.SIGN]
    checks = {
        "a quoted name or a comment does not end": any(
            token.kind in (Kind.OPEN_NAME, Kind.OPEN_HINT) for token in all_tokens
        ),
        "it is more than one statement": ";" in signs,
        "it sets a variable": ":=" in signs,
        f"it begins with '{shorten(all_tokens[0].text, 20)}', not with SELECT or SHOW": (
            all_tokens[0].text not in _FIRST
        ),
    }
    return next((why for why, holds in checks.items() if holds), "")


def _forbidden(all_tokens: Sequence[Token], allowed: frozenset[str]) -> str:
    """The first word or call that a statement which only reads does not have."""
    before = ""
    for token, after in zip_longest(all_tokens, all_tokens[1:]):
        if token.kind is Kind.WORD and token.text in _WRITES:
            return f"it holds the word '{token.text}'"
        called = token.kind is not Kind.SIGN and after is not None and after.text == "("
        reads_only = (
            token.kind is Kind.WORD and token.text in (_NO_CALLS | allowed) and before != "."
        )
        if called and not reads_only:
            return f"it calls '{shorten(token.text, 40)}', which is not known to only read"
        before = token.text
    return ""


def read_statements(path: Path) -> list[str]:
    """The statements of a file, one per line; empty lines and lines that begin with -- are skipped.

    Raises `QjouleError` if it cannot be read, is no UTF-8, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        lines = content.decode().split("\n")
    except OSError as error:
        raise QjouleError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise QjouleError(f"{path} is no text in UTF-8") from None
    statements = [line.strip() for line in lines]
    statements = [line for line in statements if line and not line.startswith("--")]
    if len(content) > MOST_BYTES or len(statements) > MOST_LINES:
        raise QjouleError(f"{path} has more than {MOST_LINES} statements or {MOST_BYTES} bytes")
    if long := next(
        (line for line in statements if len(line.encode()) > MOST_LINE or "\0" in line), ""
    ):
        raise QjouleError(f"{path}: a statement is too long or holds NUL: {_shown(long)}")
    return statements


def choose(shapes: Mapping[str, str], lines: list[str], dialect_name: str) -> Chosen:
    """One statement for each shape of a trace.

    `shapes`: text by fingerprint, the most important first. `lines`: the user's statements. A shape
    without literals needs none: its text is the statement.
    """
    dialect = registry.dialect(dialect_name)
    by_shape: dict[str, str] = {}
    refused = []
    for sql in lines:
        name = fingerprint(sql.encode(), dialect).fingerprint
        if name not in shapes:
            refused.append(f"the trace has no such statement: {_shown(sql)}")
        elif why := why_not(sql, dialect):
            refused.append(f"{why}: {_shown(sql)}")
        else:
            by_shape.setdefault(name, sql)
    missing = []
    for name, text in shapes.items():
        if name in by_shape:
            continue
        complete = fingerprint(text.encode(), dialect).fingerprint == name
        if complete and "?" not in text and not why_not(text, dialect):
            by_shape[name] = text
        else:
            missing.append(text)
    statements = [
        Statement(by_shape[name], name, text) for name, text in shapes.items() if name in by_shape
    ]
    return Chosen(tuple(statements), tuple(refused), tuple(missing))


def _shown(sql: str) -> str:
    return shorten(sanitise(sql), 80)
