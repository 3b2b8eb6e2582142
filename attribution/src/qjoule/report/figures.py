# SPDX-License-Identifier: Apache-2.0
"""Writes every figure of the page as SVG and PNG, and its data as CSV, Parquet and JSON."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from qjoule.errors import QjouleError
from qjoule.report import figure_data
from qjoule.report.build import MEASURES, means
from qjoule.report.gather import Gathered
from qjoule.report.study_runs import FACTOR
from qjoule.reporters.provenance import has_energy
from qjoule.reporters.waits import WAIT_TITLES
from qjoule.reporters.writers import cell
from qjoule.shapes.safe_text import sanitise, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The page's colours: Okabe and Ito (2008) for statements, greys for the rest.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
GREYS = {
    "idle": "#e3e5e9", "machine": "#bfc4ca", "residual": "#6d737b",
    "background": "#9aa0a8", "other statements": "#a9c4cf",
}  # fmt: skip
#: Colours of `WAIT_TITLES`, in order.
LATENCY_COLOURS = (*(COLOURS[n] for n in (0, 6, 5, 2, 1, 3)), GREYS["residual"])
KINDS = ("csv", "parquet", "json", "svg", "png")
STATEMENTS_MAX = 12  #: statements in a drawing; the data file has all
Draw = Callable[["Figure"], None]


def write_figures(
    directory: Path,
    traces: Mapping[str, Gathered],
    studies: Sequence[Path],
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """Writes all figures and their data; returns the paths of the files.

    Raises `QjouleError` if the directory cannot be made or written.
    """
    paths: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for number, (name, gathered) in enumerate(traces.items(), 1):
            prefix = f"{number}-{_file_name(name)}-" if len(traces) > 1 else ""
            for figure, (frame, draw) in _trace_figures(gathered).items():
                paths += _write(directory / f"{prefix}{figure}", frame, draw)
        for number, path in enumerate(studies, 1):
            name = _file_name(path.resolve().name)
            prefix = f"{number}-{name}-" if len(studies) > 1 else ""
            frame = figure_data.runs(path)
            paths += _write(directory / f"{prefix}study", frame, _draw_study(frame))
        for number, comparison in enumerate(comparisons, 2):
            frame = pd.DataFrame([_split_intervals(row) for row in comparison["rows"]])
            notes = " ".join(comparison["warnings"])
            frame = frame.assign(base=comparison["base"], new=comparison["new"], notes=notes)
            path = directory / f"compare-{number}-with-1"
            paths += _write(path, frame, _draw_comparison(comparison))
    except OSError as error:
        raise QjouleError(f"cannot write {directory}: {error.strerror or error}") from error
    return paths


def _write(stem: Path, frame: pd.DataFrame, draw: Draw) -> list[Path]:
    from matplotlib import rc_context  # noqa: PLC0415 (heavy)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in KINDS]
    frame.map(cell).to_csv(paths[0], index=False)
    frame.to_parquet(paths[1], index=False)
    frame.to_json(paths[2], orient="records", indent=1)
    # Text from clients is not a formula, even with dollar signs. Warnings about letters that the
    # font lacks are suppressed.
    with (
        rc_context({"text.parse_math": False, "svg.hashsalt": "qjoule", "font.size": 9}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = Figure(figsize=(9, 5), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.savefig(paths[3], metadata={"Date": None})
        figure.savefig(paths[4], dpi=120)
    return paths


def _trace_figures(gathered: Gathered) -> dict[str, tuple[pd.DataFrame, Draw]]:
    out: dict[str, tuple[pd.DataFrame, Draw]] = {
        "calls": (figure_data.calls_over_time(gathered), partial(_draw_calls, gathered)),
    }
    if any(row.waits for row in gathered.attribution.rows):
        frame = figure_data.latency(gathered)
        out["latency"] = (frame, partial(_draw_latency, gathered))
    if has_energy(gathered.attribution):
        out |= {
            "power": (figure_data.power(gathered), partial(_draw_power, gathered)),
            "parts": (figure_data.parts(gathered), partial(_draw_parts, gathered)),
            "statements": (figure_data.statements(gathered), partial(_draw_statements, gathered)),
            "calls-joules": (figure_data.calls(gathered), partial(_draw_single_calls, gathered)),
        }
    return out


def _axes(figure: Figure, gathered: Gathered, title: str) -> Axes:
    about = gathered.attribution
    axes = figure.subplots()
    axes.set_title(f"{title}\n{about.energy_source.grade}, idle {about.policy['idle']}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _total_label(gathered: Gathered) -> str:
    """The label of the total: "measured" only if the source's grade is."""
    grade = gathered.attribution.energy_source.grade
    return grade if grade == "measured" else f"{grade} total"


def _label(gathered: Gathered, number: int, length: int = 48) -> str:
    row = gathered.attribution.rows[number]
    return shorten(sanitise(row.shape[:200]) or row.keys.get("fingerprint", "?"), length)


def _draw_power(gathered: Gathered, figure: Figure) -> None:
    power = gathered.power
    axes = _axes(figure, gathered, "Power over time")
    part = power.parts_nj
    of_statements = sum(power.rows_nj.values(), start=np.zeros_like(power.measured_nj))
    layers = {
        "idle": part["idle"],
        "machine": part["other_processes"] + part["kernel"] + part["tracer"],
        "residual": part["residual"],
        "background": part["background"],
        "other statements": part["queries"] - of_statements,
    }
    colours = {name: GREYS[name] for name in layers}
    for place, (number, nj) in reversed(list(enumerate(power.rows_nj.items()))):
        label = f"{number + 1}: {_label(gathered, number, 40)}"
        layers[label], colours[label] = nj, COLOURS[place]
    seconds = np.where(power.known_ns > 0, power.known_ns * 1e-9, np.nan)
    nonzero = {name: nj for name, nj in layers.items() if nj.any()}
    if not len(seconds) or not nonzero:
        return
    steps = np.append(power.edges_ns[:-1], power.edges_ns[-1]) * 1e-9
    watts = np.nan_to_num(np.array([nj * 1e-9 / seconds for nj in nonzero.values()]))
    axes.stackplot(
        steps,
        np.hstack([watts, watts[:, -1:]]),
        labels=list(nonzero),
        colors=[colours[name] for name in nonzero],
        step="post",
    )
    axes.stairs(power.measured_nj * 1e-9 / seconds, power.edges_ns * 1e-9, color="black", lw=0.7,
                baseline=None, label=_total_label(gathered))  # fmt: skip
    axes.set(xlabel="time (s)", ylabel="power (W)", xlim=(steps[0], steps[-1]), ylim=(0, None))
    figure.legend(loc="outside lower center", ncols=2, fontsize=7)


def _draw_parts(gathered: Gathered, figure: Figure) -> None:
    axes = _axes(figure, gathered, "Where the joules went")
    parts = gathered.attribution.main.parts_nj
    axes.barh([name.replace("_", " ") for name in parts], [nj / 1e9 for nj in parts.values()],
              color=COLOURS[0])  # fmt: skip
    axes.invert_yaxis()
    axes.set_xlabel("energy (J)")


def _draw_statements(gathered: Gathered, figure: Figure) -> None:
    axes = _axes(figure, gathered, "Energy by statement, with 95 % intervals")
    rows = gathered.attribution.rows[:STATEMENTS_MAX]
    for number, row in enumerate(rows):
        low, high = row.energy_nj_ci95
        axes.barh(number, row.energy_nj / 1e9, color=COLOURS[0], alpha=0.8)
        axes.plot([low / 1e9, high / 1e9], [number, number], color="black", lw=1.2)
    axes.set_yticks(range(len(rows)), [_label(gathered, number) for number in range(len(rows))])
    axes.invert_yaxis()
    axes.set_xlabel("energy (J)")


def _draw_latency(gathered: Gathered, figure: Figure) -> None:
    axes = _axes(figure, gathered, "Where the latency went")
    numbered = [(number, row.waits) for number, row in enumerate(gathered.attribution.rows)]
    waits = {number: row_waits for number, row_waits in numbered if row_waits}
    numbers = list(waits)[:STATEMENTS_MAX]
    left = np.zeros(len(numbers))
    for (key, title), colour in zip(WAIT_TITLES.items(), LATENCY_COLOURS, strict=True):
        of_each = [getattr(waits[number], key) / waits[number].latency_ns for number in numbers]
        axes.barh(range(len(numbers)), of_each, left=left, color=colour, label=title)
        left += of_each
    axes.set_yticks(range(len(numbers)), [_label(gathered, number) for number in numbers])
    axes.invert_yaxis()
    axes.set(xlabel="share of the latency", xlim=(0, 1))
    figure.legend(loc="outside lower center", ncols=len(WAIT_TITLES), fontsize=7)


def _draw_calls(gathered: Gathered, figure: Figure) -> None:
    axes = _axes(figure, gathered, "Calls per second")
    edges_s = gathered.detail_edges_ns * 1e-9
    for place, (number, detail) in enumerate(list(gathered.details.items())[: len(COLOURS)]):
        if len(edges_s) > 1:
            axes.stairs(detail.calls[: len(edges_s) - 1] / np.diff(edges_s), edges_s, baseline=None,
                        color=COLOURS[place], label=_label(gathered, number, 40))  # fmt: skip
    axes.set(xlabel="time (s)", ylabel="calls per second", ylim=(0, None))
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=2, fontsize=7)


def _draw_single_calls(gathered: Gathered, figure: Figure) -> None:
    axes = _axes(figure, gathered, "Latency against joules, of a sample of calls")
    for place, (number, detail) in enumerate(list(gathered.details.items())[: len(COLOURS)]):
        valid = (detail.latency_ns > 0) & (detail.call_nj > 0)
        if valid.any():
            latency_s, energy_j = detail.latency_ns[valid] * 1e-9, detail.call_nj[valid] * 1e-9
            axes.scatter(latency_s, energy_j, s=9, alpha=0.7,
                         color=COLOURS[place], label=_label(gathered, number, 40))  # fmt: skip
            axes.set(xscale="log", yscale="log")
    axes.set(xlabel="latency (s)", ylabel="energy of a call (J)")
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=2, fontsize=7)


def _draw_study(runs: pd.DataFrame) -> Draw:
    """Returns a function that draws means with intervals of the first known measure."""
    factors = [name for name in runs.columns if name.startswith(FACTOR)]
    completed = runs[runs["status"] == "done"]
    columns = completed.columns
    measures = [name for name in MEASURES if name in columns and completed[name].notna().any()]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        if not measures:
            axes.set_title("No run has a figure", loc="left")
            return
        title, unit = MEASURES[measures[0]]
        table = means(completed, factors, measures[0])
        for number, row in enumerate(table.to_dict("records")):
            axes.plot(row["mean"], number, "o", color=COLOURS[0])
            if row["low"] is not None and not np.isnan(float(row["low"])):
                axes.plot([row["low"], row["high"]], [number, number], color=COLOURS[0])
        labels = [
            shorten(sanitise(", ".join(str(row[name]) for name in factors)), 60) or "all runs"
            for row in table.to_dict("records")
        ]
        axes.set_yticks(range(len(table)), labels)
        axes.invert_yaxis()
        grades = ", ".join(sorted({str(grade) for grade in runs["grade"]}))
        axes.set_title(f"{title}, mean and 95 % interval\n{grades}", loc="left")
        axes.set_xlabel(unit)
        axes.spines[["top", "right"]].set_visible(False)

    return draw


def _draw_comparison(comparison: Mapping[str, Any]) -> Draw:
    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        rows = [row for row in comparison["rows"] if row["greenup"]][:STATEMENTS_MAX]
        for number, row in enumerate(rows):
            axes.plot(row["greenup"], number, "o", color=COLOURS[2])
            low, high = row["greenup_ci95"] or (None, None)
            if low and high:
                axes.plot([low, high], [number, number], color=COLOURS[2])
        axes.axvline(1, color="grey", lw=0.8, ls="--")
        axes.set_yticks(range(len(rows)), [shorten(row["text"], 48) for row in rows])
        axes.invert_yaxis()
        notes = " ".join(comparison["warnings"])
        axes.set_title(
            f"Greenup of {comparison['new']} over {comparison['base']}\n{notes}", loc="left"
        )
        axes.set_xlabel("greenup (above 1: less energy per call)")

    return draw


def _split_intervals(row: Mapping[str, Any]) -> dict[str, Any]:
    """Splits each interval of a row into two columns."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if name.endswith("_ci95"):
            out[f"{name}_low"], out[f"{name}_high"] = value or (None, None)
        else:
            out[name] = value
    return out


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", sanitise(name))[:60].strip(".") or "trace"
