# SPDX-License-Identifier: Apache-2.0
"""docs/commands.md is what `make docs` writes."""

from __future__ import annotations

from pathlib import Path

from qjoule.cli import COMMANDS
from qjoule.commands.page import document

PAGE = Path(__file__).parents[3] / "docs/commands.md"


def test_the_page_is_made_of_the_commands_own_help() -> None:
    assert PAGE.read_text("utf-8") == document(), "run make docs"
    assert all(f"\n## `qjoule {name}`\n" in document() for name in COMMANDS)
