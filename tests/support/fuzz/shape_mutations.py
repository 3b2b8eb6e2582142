# SPDX-License-Identifier: Apache-2.0
"""Mutated statements, and what the C code of shapes makes of them.

    PYTHONPATH=tests/support .venv/bin/python tests/support/fuzz/shape_mutations.py HOW_MANY SEED

Prints a digest of what was made of so many statements.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from qjoule.shapes.rules import COUNTS, Lexis
from qjoule.shapes.sql import (
    Kind,
    closed_early,
    known_part,
    lexer,
    reduce_statement,
    strip_ellipsis,
    tokens,
)

CORPUS = Path(__file__).parents[2] / "fast/golden" / "shape_statements.txt"
#: Pieces that change the lexer's state, and words that mean something to the later steps.
PIECES = [
    *(b"'", b"''", b"\\'", b"\\", b'"', b'""', b"`", b"``", b"--", b"-- ", b"#", b"\n", b"\r"),
    *(b"/*", b"*/", b"/*!", b"/*M!5", b"/*+", b"*/*", b"*/*+", b"/", b"*", b"$", b"$$", b"$a$"),
    *(b"$1", b"E'", b"e", b"x'", b"0x", b"0b", b"0", b"7", b"1e-", b"1e+5", b".", b"-", b"+"),
    *(b" ", b"\t", b"\0", b"\x01", b"\x1b[2J", b"\xff", "é…".encode(), b"\xe2\x80", b"@", b"?"),
    *(b"select ", b" in (", b"values (", b"),(", b",", b"(", b")", b"[", b"]", b";", b" null"),
    *(b"t1", b"a.b", b" row(", b" limit ", b"array[", b"::", b":=", b"<=", b"=", b"->>", b"#>"),
    *(b"cast(", b" as ", b" default", b"_utf8mb4'x'", b"interval ", b"convert(", b" using ", b"!"),
    *(b"savepoint ", b"set @v1", b"execute ", b"drop prepare ", b"fetch ", b"create temporary"),
    *(b" table ", b" tmp_9f_x1", b" t_temp_12ab3z", b"2020_s", b"\x81\x5c", b"\x81`", b"u&'", b"|"),
    *(b"(?+)", b"?+", b"not ", b"is ", b"true", b" from ", b"&", b"~", b"`a$1`", b"timestamp '"),
    *(b" with time zone ", b" in (cast(1 as a.b.c.d.e.f))"),  # the longest element that is plain
]


class Case(NamedTuple):
    text: bytes
    lexis: Lexis
    rules: int
    truncated: bool


def corpus() -> list[bytes]:
    """The statements of the golden file."""
    lines = CORPUS.read_text("utf-8").splitlines()
    return [line.partition(" => ")[0].encode() for line in lines if " => " in line]


def _mutated(statements: list[bytes], chance: random.Random) -> bytes:
    text = bytearray(chance.choice(statements))
    for _ in range(chance.randrange(8)):
        begin, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0:
                text[begin:begin] = chance.choice(PIECES)
            case 1:
                text[begin : min(end, begin + 8)] = chance.choice(PIECES)
            case 2:
                text[begin:begin] = text[begin:end]
            case 3:
                del text[begin : min(end, begin + 9)]
            case 4:
                text[begin : begin + 1] = bytes([chance.randrange(256)])
            case 5:
                text[begin:begin] = chance.choice(statements)[: chance.randrange(60)]
    return bytes(text[:4096])


def cases(number: int, seed: int) -> Iterator[Case]:
    """Mutations of the golden statements, half of them under settings that are the default."""
    chance = random.Random(seed)
    statements = corpus()
    for _ in range(number):
        lexis = chance.choice(list(Lexis))
        rules = COUNTS[lexis].default if chance.random() < 0.5 else chance.randrange(
            COUNTS[lexis].rules
        )  # fmt: skip
        yield Case(_mutated(statements, chance), lexis, rules, chance.random() < 0.3)


def made_of(case: Case) -> tuple[object, ...]:
    """The reduced statement, its names as a shape quotes them, and its shape."""
    text, lexis, rules, truncated = case
    reduction = reduce_statement(text, lexis, rules)
    reduced, truncated = closed_early(strip_ellipsis(reduction[0])[0], truncated)
    if lexis is Lexis.BACKTICK:
        reduced = known_part(reduced)
    split = tokens(reduced, lexis)
    names = [lexer(lexis).quoted(token.text) for token in split if token.kind is Kind.NAME]
    return (*reduction, names, lexer(lexis).shape(reduced, truncated))


def digest(some: Iterable[Case]) -> str:
    """A hash of all that is made of these: it changes with any of it."""
    hashed = hashlib.sha256()
    for case in some:
        hashed.update(repr(made_of(case)).encode())
    return hashed.hexdigest()[:16]


def main() -> None:
    """Prints the digest of as many statements as the first argument says."""
    number, seed = map(int, sys.argv[1:])
    print(digest(cases(number, seed)))


if __name__ == "__main__":
    main()
