"""How figures of a study look: colours, axes, and names as labels."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.studies.statistics.sample import Sample

#: Okabe and Ito (2008), told apart also by colour-blind readers; yellow is too pale for lines.
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
