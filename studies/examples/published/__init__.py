# SPDX-License-Identifier: Apache-2.0
"""The printed results of the five studies, recomputed from their own numbers.

Tables of a source are data files: comment lines naming the source, then CSV as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

EXAMPLES = Path(__file__).parent.parent


@dataclass(frozen=True)
class Misprint:
    """A number or sentence that the source's own numbers contradict."""

    place: str
    what: str
    printed: str
    recomputed: str


def table(study: str, name: str) -> pd.DataFrame:
    """A data file of a study's folder; its cells as printed, empty ones as NaN."""
    return pd.read_csv(EXAMPLES / study / name, comment="#")


def differs(printed: float, recomputed: float, tolerance: float) -> bool:
    """Whether a printed number is not a rounding of the recomputed one."""
    return abs(printed - recomputed) > tolerance * abs(recomputed)


def number(value: float) -> str:
    """To five significant digits."""
    return f"{value:.5g}"
