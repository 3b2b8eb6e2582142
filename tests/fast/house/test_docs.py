# SPDX-License-Identifier: Apache-2.0
"""Pages are few and short, are what `make docs` writes, and name only what exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands_page import document
from qjoule.cli import COMMANDS

TREE = Path(__file__).parents[3]
TESTS = {path.name for path in TREE.glob("**/tests/**/test_*.py")}
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
    found = [page for room in rooms for page in (TREE / room).rglob("*.md")]
    found += [*TREE.glob("*.md"), *(TREE / "tests").rglob("*.md")]
    return sorted(page for page in found if page.name != "CHANGELOG.md")


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
        if name not in TESTS and not (TREE / name).exists():
            yield name


def anchors(page: Path) -> Iterator[str]:
    for line in lines_of(page):
        if line.startswith("#"):
            title = line.lstrip("#").strip().lower()
            yield re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


def test_the_page_of_commands_is_made_of_their_own_help() -> None:
    assert (TREE / "docs/commands.md").read_text("utf-8") == document(), "run make docs"
    assert all(f"\n## `qjoule {name}`\n" in document() for name in COMMANDS)


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
