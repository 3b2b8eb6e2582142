# SPDX-License-Identifier: Apache-2.0
"""Rules of the tree: licences, where servers may be named, root's lines, and what tests may cost.

`house_names.json` lists the shared files that still name a server, with the number of such
identifiers. No other file may name any. When a file names fewer, shorten the list:
`QJOULE_REGOLD=1 pytest tests/fast/house/test_house.py`.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule.servers.registry import servers

TREE = Path(__file__).parents[3]
TESTS = TREE / "tests"


def tracked(*suffixes: str) -> list[Path]:
    """Files of the tree, without those of others."""
    if not (TREE / ".git").exists():
        pytest.skip("not a checkout: what belongs to the tree is not known")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TREE, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if "vendor/" not in name]
    return [TREE / name for name in names if name.endswith(suffixes) and (TREE / name).exists()]


# ---- what tests cost -----------------------------------------------------------------------------

TIERS = {"fast", "servers", "exclusive", "nightly"}
#: Folders of tiers, and helper modules.
OTHERS = {"studies", "fleet", "support"}
#: What a test says that asks for a server, or that traces one: a client's bytes are no recording.
COSTLY = re.compile(
    r"mark\.server\b|: DatabaseServer\b|^(?:from|import) tracing\b(?!\.\w+_(?:client|values) )",
    re.MULTILINE,
)


def test_every_folder_below_tests_is_one_of_the_tiers() -> None:
    paths = [path.relative_to(TESTS).parts for path in tracked(".py") if TESTS in path.parents]
    assert {parts[0] for parts in paths if len(parts) > 1} == TIERS | OTHERS
    inner = {parts[1] for parts in paths if parts[0] in OTHERS - {"support"}}
    assert inner <= TIERS


def test_nothing_fast_starts_a_server_or_loads_bpf() -> None:
    fast = [path for path in tracked(".py") if "fast" in path.parts and "test_" in path.name]
    assert len(fast) > 100
    found = {path.name: COSTLY.search(path.read_text()) for path in fast if path != Path(__file__)}
    assert {name: match[0] for name, match in found.items() if match} == {}


# ---- licences ------------------------------------------------------------------------------------

ANY = "SPDX-License-Identifier: "
DUAL = "SPDX-License-Identifier: GPL-2.0 OR Apache-2.0"
SOURCES = (".py", ".pyi", ".c", ".h", ".cpp", ".java", ".R", ".mk")


def test_every_source_has_a_licence_and_what_runs_in_the_kernel_is_gpl_too() -> None:
    """The kernel offers its BPF helpers only to programs under the GPL (LICENSE in maps.bpf.c)."""
    paths = tracked(*SOURCES)
    assert any(TREE / "bpf" in path.parents for path in paths)
    missing = []
    for path in paths:
        with path.open(encoding="utf-8") as file:
            head = "".join(file.readline() for _ in range(3))
        if (DUAL if TREE / "bpf" in path.parents else ANY) not in head:
            missing.append(str(path.relative_to(TREE)))
    assert not missing


# ---- names of servers ----------------------------------------------------------------------------

LISTED = Path(__file__).with_name("house_names.json")
#: Folders of shared code. Inside them, a path with a server's name belongs to that server.
ROOMS = ("bpf", "tracer", "attribution/src", "drivers/src")
#: "generic" may be any program, and is a word of Python's.
NAMES = (*(name for name in servers() if name != "generic"), "mariadb")
#: Other names for some of them.
ALIASES = ("mongo", "pg", "cql")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_C_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*')
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def names_server(word: str) -> bool:
    """Whether an identifier, or a string without spaces, contains a server's name."""
    if any(name in word.lower() for name in NAMES):
        return True
    return any(part.lower() in ALIASES for part in _PART.findall(word))


def words_of(path: Path) -> Iterator[str]:
    """Identifiers and strings without spaces; comments and sentences do not count."""
    text = path.read_text("utf-8")
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
    for path in sorted(path for room in ROOMS for path in (tree / room).rglob("*.[pch]*")):
        relative = path.relative_to(tree)
        if path.suffix in {".py", ".c", ".h"} and not any(map(names_server, relative.parts)):
            counts[str(relative)] = sum(map(names_server, words_of(path)))
    return {name: count for name, count in counts.items() if count}


def test_no_shared_file_names_a_server_but_those_listed() -> None:
    counts = named(TREE)
    if os.environ.get("QJOULE_REGOLD"):
        LISTED.write_text(json.dumps(counts, indent=1) + "\n", "utf-8")
    listed = json.loads(LISTED.read_text("utf-8"))
    assert counts == listed, "what concerns one server belongs into its folder"


# ---- what runs as root ---------------------------------------------------------------------------
#
# A line counts unless it is blank, comment, #include, or brackets alone. The headers of tracer/root
# count, but not protocol.h: it is the contract with processes without rights, and has no code.

ROOT_PART = TREE / "tracer" / "root"
SHARED = TREE / "tracer" / "variant.h"  #: code that the root part and the tracer have in common
PACKAGE = TREE / "attribution/src/qjoule"
#: It must not grow: new code has to replace something else. The keeper's requests to follow servers
#: took 68 lines (docs/security.md says what that widens), the variant for early kernels 16,
#: giving up root before `convert` reads anything 17, starting the agent again 6, the accounts of
#: what our programs cost 13, because only root may have the kernel keep them, passing notices on to
#: a service manager that listens to the main process alone 30, recordings beside the agent 73: only
#: root can start another root part, and stop it when the agent ends. Passing signals on without
#: CAP_KILL took 6.
MOST_LINES = 1_212
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def lines_of_c(text: str) -> int:
    def without_comment(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else "\n" * found[0].count("\n")

    lines = _STRING_OR_COMMENT.sub(without_comment, text).splitlines()
    code = re.compile(r"[^\s(){}\[\],;]")
    return sum(bool(code.search(line)) and not line.startswith("#include") for line in lines)


def lines_of_python(text: str) -> int:
    """Lines with a token that is no bracket, comment or docstring."""
    counted: set[int] = set()
    begins = True  # a string as a statement is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            begins = True
            continue
        if not (begins and token.type == tokenize.STRING) and token.string not in "()[]{},;":
            counted.update(range(token.start[0], token.end[0] + 1))
        begins = False
    return len(counted)


def test_which_lines_count() -> None:
    c = "/* A\nb; */\n#include <a.h>\n#define A 1\n\nint f(void) // c;\n{\n"
    c += '\tg("/* ;",\n\t  a);\n\tint b[] = {\n\t    1,\n\t};\n}\n'
    assert lines_of_c(c) == 6
    python = '"""Doc.\n\nMore."""\nimport os\n\nif os:  # c\n    f(\n        1,\n    )\n'
    assert lines_of_python(python) == 4


def test_what_runs_as_root_is_small() -> None:
    paths = [SHARED, *(path for path in ROOT_PART.glob("*.[ch]") if path.name != "protocol.h")]
    lines = {path.name: lines_of_c(path.read_text()) for path in paths}
    assert {"main.c", "look.c", "attach.c", "outputs.c", "root.h"} <= lines.keys()
    for name in ("start.py", "__init__.py", "__main__.py"):
        lines[name] = lines_of_python((PACKAGE / name).read_text())
    assert sum(lines.values()) <= MOST_LINES, lines
