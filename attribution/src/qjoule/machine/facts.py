# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine, as `doctor` shows them, and the small files that they are read from: of
/proc and /sys, and the CSV tables of this package.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Check:
    """`ok` is None if it is unknown. `fix` is how to repair what is not ok."""

    name: str
    ok: bool | None
    detail: str
    fix: str = ""


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
