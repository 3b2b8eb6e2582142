# SPDX-License-Identifier: Apache-2.0
"""Rules of the tree: tiers of tests, licences, where servers may be named, and root's lines.
Also: what pages may name, and that planted faults fit the code.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.bench_faults import FAULTS, faults_of

from commands_page import document
from qjoule.cli import COMMANDS
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
#: Distributions with tests of their own, in the same tiers.
OTHERS = ("studies", "fleet")
HELPERS = "support"
#: In a test that starts or traces a server; building a client's bytes is neither.
COSTLY = re.compile(
    r"mark\.server\b|: DatabaseServer\b|^(?:from|import) tracing\b(?!\.\w+_(?:client|values) )",
    re.MULTILINE,
)


def test_every_folder_below_tests_is_one_of_the_tiers() -> None:
    for tests in (TESTS, *(TREE / name / "tests" for name in OTHERS)):
        paths = [path.relative_to(tests).parts for path in tracked(".py") if tests in path.parents]
        folders = {parts[0] for parts in paths if len(parts) > 1}
        assert folders == TIERS | {HELPERS} if tests == TESTS else folders <= TIERS | {HELPERS}


def test_nothing_fast_starts_a_server_or_loads_bpf() -> None:
    fast = [path for path in tracked(".py") if "fast" in path.parts and "test_" in path.name]
    assert len(fast) > 100
    matches = {
        path.name: COSTLY.search(path.read_text()) for path in fast if path != Path(__file__)
    }
    assert {name: match[0] for name, match in matches.items() if match} == {}


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

#: Folders of shared code. Inside them, a path with a server's name belongs to that server.
ROOMS = ("bpf", "tracer", "attribution/src", "drivers/src", "studies/src", "fleet/src")
#: "generic" may be any program, and is a word of Python's.
NAMES = (*(name for name in servers() if name != "generic"), "mariadb")
#: Other names for some of them.
ALIASES = ("mongo", "pg", "cql")
#: Shared files that still name a server. This list should shrink.
NAMING = {
    "studies/src/qjoule_studies/workloads/load_clients.py",
    "studies/src/qjoule_studies/workloads/operators.py",
    "studies/src/qjoule_studies/workloads/sql_session.py",
    "studies/src/qjoule_studies/workloads/tpch.py",
    "drivers/src/qjoule_drivers/shims/__init__.py",
    "drivers/src/qjoule_drivers/shims/psycopg.py",
    "drivers/src/qjoule_drivers/shims/pymongo.py",
}
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_C_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*')
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def names_server(word: str) -> bool:
    """Whether an identifier, or a string without spaces, contains a server's name."""
    if any(name in word.lower() for name in NAMES):
        return True
    return any(part.lower() in ALIASES for part in _PART.findall(word))


def words_of(path: Path) -> list[str]:
    """Identifiers and strings without spaces; comments and sentences do not count."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        identifiers = _C_WORD.findall(_C_COMMENT.sub(" ", text))
        return [word for word in identifiers if " " not in word]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    counted = [token.string for token in tokens if token.type in (tokenize.NAME, tokenize.STRING)]
    return [word for word in counted if not re.search(r'\s|"""', word)]


def test_no_shared_file_names_a_server_but_those_listed() -> None:
    naming = set()
    for path in sorted(path for room in ROOMS for path in (TREE / room).rglob("*.[pch]*")):
        relative = path.relative_to(TREE)
        shared = path.suffix in {".py", ".c", ".h"} and not any(map(names_server, relative.parts))
        if shared and any(map(names_server, words_of(path))):
            naming.add(str(relative))
    assert naming == NAMING, "what concerns one server belongs into its folder"


# ---- what runs as root ---------------------------------------------------------------------------
#
# A line counts unless it is blank, comment, #include, or brackets alone. The headers of tracer/root
# count, but not protocol.h: it is the contract with processes without rights, and has no code.

ROOT_PART = TREE / "tracer" / "root"
SHARED = TREE / "tracer" / "variant.h"  #: code that the root part and the tracer have in common
PACKAGE = TREE / "attribution/src/qjoule"
#: It must not grow: new code has to replace something else (docs/security.md describes it).
MOST_LINES = 1109
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def lines_of_c(text: str) -> int:
    def without_comment(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else "\n" * match[0].count("\n")

    lines = _STRING_OR_COMMENT.sub(without_comment, text).splitlines()
    code = re.compile(r"[^\s(){}\[\],;]")
    return sum(bool(code.search(line)) and not line.startswith("#include") for line in lines)


def test_what_runs_as_root_is_small() -> None:
    paths = [SHARED, *(path for path in ROOT_PART.glob("*.[ch]") if path.name != "protocol.h")]
    lines = {path.name: lines_of_c(path.read_text()) for path in paths}
    assert {"main.c", "bind.c", "attach.c", "outputs.c", "root.h"} <= lines.keys()
    for name in ("start.py", "__init__.py", "__main__.py"):
        nodes = ast.walk(ast.parse((PACKAGE / name).read_text()))
        lines[name] = len({node.lineno for node in nodes if isinstance(node, ast.expr | ast.stmt)})
    assert sum(lines.values()) <= MOST_LINES, lines


# ---- pages are few and short, are what `make docs` writes, and name only what exists -------------

TEST_FILES = {path.name for path in TREE.glob("**/tests/**/test_*.py")}
DOCS = sorted((TREE / "docs").glob("*.md"))
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_TEST_FILE = re.compile(r"(?:(?<![\w./-])[\w/-]*tests/[\w./-]+/)?\btest_\w+\.py\b")


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def pages() -> list[Path]:
    rooms = (
        "agent",
        "attribution",
        "bench",
        "bpf",
        "docs",
        "drivers",
        "examples",
        "fleet",
        "packaging",
        "studies",
    )
    all_pages = [page for room in rooms for page in (TREE / room).rglob("*.md")]
    all_pages += [*TREE.glob("*.md"), *(TREE / "tests").rglob("*.md")]
    return sorted(page for page in all_pages if page.name != "CHANGELOG.md")


def broken(page: Path) -> Iterator[str]:
    """Links that lead nowhere, and tests that are not there."""
    text = page.read_text("utf-8")
    for link in _LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if link.startswith(("http:", "https:")):
            continue
        if not target.exists() or (anchor and anchor not in set(anchors(target))):
            yield link
    for name in _TEST_FILE.findall(text):
        if name not in TEST_FILES and not (TREE / name).exists():
            yield name


def anchors(page: Path) -> Iterator[str]:
    for line in lines_of(page):
        if line.startswith("#"):
            title = line.lstrip("#").strip().lower()
            yield re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


def test_the_page_of_commands_is_made_of_their_own_help() -> None:
    assert (TREE / "docs/commands.md").read_text("utf-8") == document(), "run make docs"
    assert all(re.search(rf"^## `qjoule {name}[` ]", document(), re.MULTILINE) for name in COMMANDS)


def test_pages_are_few_and_short() -> None:
    assert len(DOCS) <= 14
    assert sum(len(lines_of(page)) for page in DOCS) <= 3000
    assert max(len(lines_of(page)) for page in DOCS) <= 250
    readme = lines_of(TREE / "README.md")
    assert len(readme) <= 150
    assert not [line for line in readme if len(line) > 100]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(TREE)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert not list(broken(page))


# ---- planted faults ------------------------------------------------------------------------------


@pytest.mark.parametrize("area", sorted(FAULTS.glob("*.toml")), ids=lambda area: area.stem)
def test_every_planted_fault_has_its_line_and_its_tests(area: Path) -> None:
    """`make bench-faults`, which takes an hour, stops at a line that is no longer in its file."""
    for fault in faults_of(area):
        assert fault.new != fault.old
        assert all((TREE / name).exists() for name in fault.tests), fault
