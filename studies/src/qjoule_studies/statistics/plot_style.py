# SPDX-License-Identifier: Apache-2.0
"""How figures of a study look: colours, axes, and names as labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qjoule.api import QjouleError
from qjoule.api.command import sanitise, shorten
from qjoule.api.screen import writers
from qjoule_studies.statistics.sample import Sample

#: Okabe and Ito (2008), also distinct for colour-blind readers; yellow is too pale for lines.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
GREY = "#777777"
MOST = 60  #: of groups or pairs in a figure; its CSV has all
MOST_INTERACTIONS = 6
STYLE: Any = {
    "text.parse_math": False,  # names are text: a `$` begins no formula
    "svg.fonttype": "none",
    "svg.hashsalt": "qjoule",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}

BESIDE: Any = {"frameon": False, "loc": "upper left", "bbox_to_anchor": (1, 1)}


#: A figure's name, the figure, and its data.
Drawn = tuple[str, Figure, pd.DataFrame]


def save(figures: Iterable[Drawn], folder: Path) -> list[Path]:
    """Writes figures as SVG and PNG and their data as CSV into `folder`, made if need be.

    Raises:
        QjouleError: the folder or a file cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(), mpl.rc_context(STYLE):
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            for name, figure, data in figures:
                for kind in ("svg", "png"):
                    path = folder / f"{name}.{kind}"
                    figure.savefig(path, dpi=150, metadata={"Date": None} if kind == "svg" else {})
                    written.append(path)
                path = folder / f"{name}.csv"
                data.map(writers.cell).rename(columns=writers.cell).to_csv(path, index=False)
                written.append(path)
    except OSError as error:
        raise QjouleError(f"cannot write figures to {folder}: {error.strerror}") from error
    return written


def upright(rows: int) -> tuple[Figure, Axes]:
    """A figure with a row for each group, the first one on top."""
    figure = Figure(figsize=(7, 1.4 + 0.28 * max(rows, 2)))
    axes = figure.subplots()
    axes.set_ylim(max(rows, 1) - 0.5, -0.5)
    axes.margins(x=0.1)
    return figure, axes


def plain() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 4))
    return figure, figure.subplots()


def name_rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [text_of(name) for name in names])


def title(axes: Axes, sample: Sample, aside: str) -> None:
    """The grade and the idle policy are on every figure."""
    parts: list[Any] = [
        f"{len(sample.values)} runs",
        "grade " + " and ".join(sample.measured_by["grade"][:3]),
        "idle " + " and ".join(sample.measured_by["idle_policy"][:3]),
    ]
    text = ", ".join(text_of(part) for part in parts)
    axes.set_title(f"{text}\n{aside}" if aside else text, fontsize="small")


def text_of(name: str, length: int = 40) -> str:
    """A name as a label: one line, and none that a legend passes over for its underscore."""
    text = shorten(sanitise(name), length) or "(empty)"
    return f"\N{THIN SPACE}{text}" if text.startswith("_") else text
