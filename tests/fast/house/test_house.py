# SPDX-License-Identifier: Apache-2.0
"""Servers are named only in their own folders and in the registry.

`house_names.json` lists the shared files that still name one, with the number of such identifiers.
No file may exceed its number, and no other file may name any. When a file names fewer, shorten the
list: `QJOULE_REGOLD=1 pytest tests/fast/house/test_house.py`.
"""

from __future__ import annotations

import io
import json
import os
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule.servers.registry import servers

TREE = Path(__file__).parents[3]
LISTED = Path(__file__).with_name("house_names.json")
#: Folders of shared code. Inside them, a path with a server's name belongs to that server.
ROOMS = ("bpf", "tracer", "attribution/src", "drivers/src")
SUFFIXES = (".py", ".c", ".h")
#: "generic" may be any program, and is a word of Python's.
NAMES = (*(name for name in servers() if name != "generic"), "mariadb")
#: Other names for some of them.
ALIASES = ("mongo", "pg", "cql")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_C_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*')
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def names_server(word: str) -> bool:
    """Whether an identifier, or a string without spaces, contains a server's name."""
    lower = word.lower()
    if any(name in lower for name in NAMES):
        return True
    return any(part.lower() in ALIASES for part in _PART.findall(word))


def words_of(path: Path, text: str) -> Iterator[str]:
    """Identifiers and strings without spaces; comments and sentences do not count."""
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            sentence = re.search(r'\s|"""', token.string)
            if token.type == tokenize.NAME or (token.type == tokenize.STRING and not sentence):
                yield token.string
    else:
        words = _C_WORD.findall(_C_COMMENT.sub(" ", text))
        yield from (word for word in words if " " not in word)


def named(tree: Path) -> dict[str, int]:
    """Shared files that name a server, with how often."""
    counts: dict[str, int] = {}
    for room in ROOMS:
        for path in sorted((tree / room).rglob("*")):
            relative = path.relative_to(tree)
            if path.suffix not in SUFFIXES or any(map(names_server, relative.parts)):
                continue
            count = sum(map(names_server, words_of(path, path.read_text("utf-8"))))
            if count:
                counts[str(relative)] = count
    return counts


def test_no_shared_file_names_a_server_more_than_listed() -> None:
    found = named(TREE)
    if os.environ.get("QJOULE_REGOLD"):
        LISTED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    listed: dict[str, int] = json.loads(LISTED.read_text("utf-8"))
    print(f"{sum(found.values())} names of servers in {len(found)} shared files")
    more = {
        name: f"{count} names, {listed.get(name, 0)} listed"
        for name, count in found.items()
        if count > listed.get(name, 0)
    }
    assert not more, "what concerns one server belongs into its folder"


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("core/a.c", '#include "mysql/kept.h"\nint redis_reads; /* redis */ // redis\n', 2),
        ("core/a.h", 'int pg_states; const char *said = "a mysql server"; int pgm;\n', 1),
        ("core/a.py", '"""MySQL."""\nCqlIds = {"redis": 1}  # redis\nSAID = "of redis"\n', 2),
        ("redis/a.c", "int redis_reads;\n", 0),
        ("core/a.md", "redis\n", 0),
    ],
)
def test_what_names_a_server(tmp_path: Path, name: str, text: str, count: int) -> None:
    path = tmp_path / "bpf" / name
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    assert sum(named(tmp_path).values()) == count
