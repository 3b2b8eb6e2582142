# SPDX-License-Identifier: Apache-2.0
"""Small files: of /proc and /sys, and the CSV tables of this package."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of ``machine/NAME.csv`` by column name. Its `#` lines are its sources and licences."""
    text = Path(__file__).with_name(f"{name}.csv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return tuple(csv.DictReader(lines))


def read_text(path: Path) -> str:
    """The file's text without surrounding space; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
