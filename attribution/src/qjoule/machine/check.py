# SPDX-License-Identifier: Apache-2.0
"""One fact about the machine, as `doctor` shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`ok` is None if it is unknown. `fix` is how to repair what is not ok."""

    name: str
    ok: bool | None
    detail: str
    fix: str = ""
