# SPDX-License-Identifier: Apache-2.0
"""Smaller datasets made of a large one's files, without copying their bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from qjoule.agent.rollup_layout import HOURS, ROLLUPS, SLOW


def subset(
    root: Path,
    to: Path,
    hosts: Sequence[str],
    hours: Collection[int] = range(24),
    tables: Collection[str] = (HOURS,),
) -> Path:
    """`hours`: of each day. `tables`: those of the hourly ones; slow ones are always there."""
    names = set(hosts)
    for table in (*(one for one in (ROLLUPS, HOURS) if one in tables), *SLOW):
        for path in (root / table).rglob("*.parquet"):
            hourly = table not in SLOW
            if path.parent.name.removeprefix("host=") not in names:
                continue
            if hourly and int(path.name[5:7]) not in hours:
                continue
            link(path, to / path.relative_to(root))
    return to


def link(path: Path, to: Path) -> None:
    """Another name of a file; a copy where the filesystem has no other names."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(path, to)
        return
    shutil.copy(path, to)
