# SPDX-License-Identifier: Apache-2.0
"""Figures of a characterisation: principal components, dendrogram and Kiviat diagrams."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qjoule.api import QjouleError
from qjoule.api.command import shorten
from qjoule.api.screen import format as fmt
from qjoule_studies.characterisation import Characterisation
from qjoule_studies.reporters.characterisation import name_of
from qjoule_studies.reporters.characterisation_data import figure_tables, to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = ("svg", "png")
_NAME_LENGTH = 44
_MOST_KIVIATS = 12


def write_all(result: Characterisation, directory: Path) -> list[str]:
    """Writes every figure as SVG and PNG with its data as CSV, and the characterisation as JSON.

    Returns the files' names. Raises `QjouleError` if they cannot be written.
    """
    figures: dict[str, Callable[[Characterisation], Figure]] = {}
    if result.principal is not None:
        figures |= {"principal": principal_figure, "dendrogram": dendrogram_figure}
    if result.diagram is not None:
        figures["kiviat"] = kiviat_figure
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, draw in figures.items():
            figure = draw(result)
            for form in _FORMATS:
                figure.savefig(directory / f"{name}.{form}", dpi=150, metadata=_METADATA[form])
                written.append(f"{name}.{form}")
        for name, text in figure_tables(result).items():
            (directory / f"{name}.csv").write_text(text, encoding="utf-8", newline="")
            written.append(f"{name}.csv")
        (directory / "characterisation.json").write_text(to_json(result), encoding="utf-8")
    except OSError as error:
        raise QjouleError(f"cannot write {directory}: {error.strerror or error}") from error
    return [*written, "characterisation.json"]


#: No date: the same traces give the same files.
_METADATA: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "png": {"Software": None}}


def _text(text: str) -> str:
    """A client's text for matplotlib, in which `$` would begin a formula."""
    return shorten(fmt.one_line(text), _NAME_LENGTH).replace("$", r"\$")


def _names(result: Characterisation) -> list[str]:
    return [_text(name_of(result.rows[i], result)) for i in result.compared.rows]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to import

    return Figure(figsize=(width, height), layout="constrained")


def principal_figure(result: Characterisation) -> Figure:
    """Rows on the first two components, and the directions of the metrics."""
    components = result.principal
    assert components is not None
    figure = _figure(12, 5.5)
    rows, arrows = figure.subplots(1, 2)
    scores = components.scores[:, :2]
    rows.scatter(scores[:, 0], scores[:, 1], s=18)
    for name, (x, y) in zip(_names(result), scores.tolist(), strict=True):
        rows.annotate(name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
    rows.margins(0.15)
    for column, (x, y) in zip(components.columns, components.loadings[:, :2], strict=True):
        arrows.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": "tab:red"})
        arrows.annotate(_text(column), (x, y), fontsize=8, ha="center", va="bottom")
    arrows.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))
    for axes, title in ((rows, "scores"), (arrows, "loadings")):
        first, second = (fmt.share(float(share)) for share in components.explained[:2])
        axes.set(title=title, xlabel=f"PC1 ({first})", ylabel=f"PC2 ({second})")
        axes.axhline(0, color="0.8", lw=0.8, zorder=0)
        axes.axvline(0, color="0.8", lw=0.8, zorder=0)
    return figure


def dendrogram_figure(result: Characterisation) -> Figure:
    """Which rows are similar: they join at the distance of their clusters."""
    from scipy.cluster.hierarchy import dendrogram  # noqa: PLC0415 - slow to import

    assert result.linkage is not None
    names = _names(result)
    figure = _figure(9, max(3.0, 0.28 * len(names) + 1.2))
    axes = figure.subplots()
    dendrogram(result.linkage, labels=names, orientation="right", ax=axes, leaf_font_size=8)
    axes.set(title="average linkage in the space of the components", xlabel="distance")
    return figure


def kiviat_figure(result: Characterisation) -> Figure:
    """A radar for each of the rows with most CPU time; 1 is the greatest figure of any row."""
    diagram = result.diagram
    assert diagram is not None
    titles = {metric.name: metric.title for metric in result.metrics}
    shown = [i for i, row in enumerate(result.rows) if not row.folded][:_MOST_KIVIATS]
    across = min(4, len(shown))
    down = math.ceil(len(shown) / across)
    figure = _figure(3.4 * across, 3.5 * down)
    angles = np.linspace(0, 2 * math.pi, len(diagram.axes), endpoint=False)
    for place, i in enumerate(shown):
        axes = figure.add_subplot(down, across, place + 1, projection="polar")
        values = diagram.values[i]
        axes.plot(np.append(angles, 0), np.append(values, values[0]), lw=1.5)
        if np.isfinite(values).all():
            axes.fill(angles, values, alpha=0.25)
        axes.set_ylim(0, 1)
        axes.set_yticks([0.5, 1.0], ["", ""])
        axes.set_xticks(angles, [_text(titles[name]) for name in diagram.axes], fontsize=7)
        axes.set_title(_text(name_of(result.rows[i], result)), fontsize=8)
    greatest = ", ".join(
        f"{titles[name]} {fmt.significant(float(value))}"
        for name, value in zip(diagram.axes, diagram.greatest, strict=True)
    )
    figure.supxlabel(_wrapped(f"the rim is {greatest}"), fontsize=7)
    return figure


def _wrapped(text: str) -> str:
    import textwrap  # noqa: PLC0415

    return "\n".join(textwrap.wrap(text.replace("$", r"\$"), 110))
