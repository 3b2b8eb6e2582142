# SPDX-License-Identifier: Apache-2.0
"""The CSV tables beside this module: `#` lines are their sources and licences."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of ``machine/NAME.csv`` by column name."""
    text = files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return tuple(csv.DictReader(lines))
