# SPDX-License-Identifier: Apache-2.0
"""Figures of a study, each as SVG and PNG, with its data as CSV beside it.

File names are made of responses' names and numbers: no factor or level names a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from qjoule.api.command import FACTOR
from qjoule_studies.statistics.design import BLOCK, BY
from qjoule_studies.statistics.pairwise import ALPHA, Pairs
from qjoule_studies.statistics.plot_style import (
    BESIDE,
    GREY,
    MARKERS,
    MOST,
    MOST_INTERACTIONS,
    OKABE_ITO,
    Drawn,
    name_rows,
    plain,
    save,
    text_of,
    title,
    upright,
)
from qjoule_studies.statistics.study import Findings, Response, Study


def write(study: Study, folder: Path) -> list[Path]:
    """Writes every figure of the study into `folder`, which is made if need be.

    Raises:
        QjouleError: the folder or a file cannot be written.
    """
    return save(_figures(study), folder)


def _figures(study: Study) -> Iterator[Drawn]:
    for response in study.responses:
        yield _means(response)
        if response.tests is None:
            continue
        yield _effects(response, response.tests)
        if response.tests.combinations.pairs:
            yield _pairs(response, response.tests.combinations, "pairs")
        for number, (_, pairs) in enumerate(response.tests.factors, 1):
            if pairs.pairs:
                yield _pairs(response, pairs, f"pairs-factor{number}")
        yield from _interactions(response)
        yield _residuals(response, response.tests)
    if study.energy_time is not None:
        yield _energy_time(study)


def _means(response: Response) -> Drawn:
    """Means of combinations, with intervals of their own and the letters of the pairs."""
    sample = response.sample
    letters = (
        [group.letters for group in response.tests.combinations.groups]
        if response.tests
        else [""] * len(response.means)
    )
    data = pd.DataFrame(
        {
            **{
                FACTOR + name: [mean.levels[factor] for mean in response.means]
                for factor, name in enumerate(sample.design.names)
            },
            "runs": [mean.runs for mean in response.means],
            "mean": [mean.mean for mean in response.means],
            "low95": [mean.low for mean in response.means],
            "high95": [mean.high for mean in response.means],
            "letters": letters,
        }
    )
    shown = response.means[:MOST]
    figure, axes = upright(len(shown))
    for place, mean in enumerate(shown):
        low = mean.mean if mean.low is None else mean.low
        high = mean.mean if mean.high is None else mean.high
        axes.plot([low, high], [place, place], color=OKABE_ITO[0], linewidth=2)
        axes.plot(mean.mean, place, "o", color=OKABE_ITO[0])
        axes.annotate(
            letters[place], (high, place), (6, 0), textcoords="offset points", va="center"
        )
    name_rows(axes, [BY.join(mean.levels) or "all runs" for mean in shown])
    axes.set_xlabel(f"{sample.response} ({sample.unit}), mean and 95 % interval")
    title(axes, sample, "a letter in common: not shown to differ" if any(letters) else "")
    return f"{sample.response}-means", figure, data


def _pairs(response: Response, pairs: Pairs, name: str) -> Drawn:
    """Differences with simultaneous intervals: what leaves out zero differs."""
    label = [
        f"{pairs.groups[pair.first].name} - {pairs.groups[pair.second].name}"
        for pair in pairs.pairs
    ]
    data = pd.DataFrame(
        {
            "one": [pairs.groups[pair.first].name for pair in pairs.pairs],
            "other": [pairs.groups[pair.second].name for pair in pairs.pairs],
            "difference": [pair.difference for pair in pairs.pairs],
            "low95": [pair.low for pair in pairs.pairs],
            "high95": [pair.high for pair in pairs.pairs],
            "p": [pair.p for pair in pairs.pairs],
            "hedges_g": [pair.size.g for pair in pairs.pairs],
        }
    )
    order = sorted(range(len(label)), key=lambda at: -abs(pairs.pairs[at].difference))[:MOST]
    figure, axes = upright(len(order))
    axes.axvline(0, color=GREY, linewidth=1, linestyle="--")
    for place, at in enumerate(order):
        pair = pairs.pairs[at]
        differs = pair.p is not None and pair.p < ALPHA
        color = OKABE_ITO[1] if differs else GREY
        ends = [pair.difference if end is None else end for end in (pair.low, pair.high)]
        axes.plot(ends, [place, place], color=color, linewidth=2)
        axes.plot(pair.difference, place, "D" if differs else "o", color=color)
    name_rows(axes, [label[at] for at in order])
    axes.set_xlabel(
        f"difference in {response.sample.response} ({response.sample.unit}), 95 % together"
    )
    title(axes, response.sample, f"{pairs.method}; diamonds differ")
    return f"{response.sample.response}-{name}", figure, data


def _effects(response: Response, tests: Findings) -> Drawn:
    table = tests.anova
    total = sum(effect.sum_sq for effect in table.effects) + table.sum_sq_error
    names = [effect.name for effect in table.effects] + ["error"]
    shares = [effect.sum_sq / total for effect in table.effects] + [table.sum_sq_error / total]
    figure, axes = upright(len(names))
    color = [GREY if effect.term == BLOCK else OKABE_ITO[0] for effect in table.effects]
    axes.barh(range(len(names)), [100 * share for share in shares], color=[*color, GREY])
    for place, share in enumerate(shares):
        axes.annotate(
            f"{share:.1%}", (100 * share, place), (4, 0), textcoords="offset points", va="center"
        )
    name_rows(axes, names)
    axes.set_xlabel(f"share of the variance of {response.sample.response} (%)")
    title(axes, response.sample, "")
    data = pd.DataFrame(
        {
            "effect": names,
            "share": shares,
            "p": [*(effect.p for effect in table.effects), None],
        }
    )
    return f"{response.sample.response}-effects", figure, data


def _interactions(response: Response) -> Iterator[Drawn]:
    """For each two factors, means over the runs of both levels; parallel lines: no interaction."""
    sample, design = response.sample, response.sample.design
    pairs = itertools.combinations(range(len(design.names)), 2)
    for number, (x, lines) in enumerate(itertools.islice(pairs, MOST_INTERACTIONS), 1):
        data = pd.DataFrame(
            {"x": design.codes[:, x], "line": design.codes[:, lines], "mean": sample.values}
        )
        means = data.groupby(["x", "line"], as_index=False)["mean"].mean()
        figure, axes = plain()
        for line in range(min(len(design.levels[lines]), MOST)):
            own = means[means["line"] == line]
            axes.plot(
                own["x"],
                own["mean"],
                marker=MARKERS[line % len(MARKERS)],
                color=OKABE_ITO[line % len(OKABE_ITO)],
                label=text_of(design.levels[lines][line]),
            )
        levels = [text_of(level, 16) for level in design.levels[x]]
        axes.set_xticks(range(len(levels)), levels, rotation=30 if len(levels) > 4 else 0)
        axes.set_xlabel(text_of(design.names[x]))
        axes.set_ylabel(f"mean {sample.response} ({sample.unit})")
        axes.legend(title=text_of(design.names[lines]), **BESIDE)
        title(axes, sample, "")
        means = means.assign(
            x=[design.levels[x][code] for code in means["x"]],
            line=[design.levels[lines][code] for code in means["line"]],
        )
        yield f"{sample.response}-interaction{number}", figure, means


def _residuals(response: Response, tests: Findings) -> Drawn:
    """Against what the model expects, against normal quantiles, and over the order of runs."""
    sample, residuals = response.sample, tests.anova.fit.residuals
    fitted = sample.values - residuals
    order = np.argsort(np.argsort(sample.order, kind="stable"), kind="stable") + 1
    (quantiles, _), (slope, intercept, _) = stats.probplot(residuals)
    figure = Figure(figsize=(9, 3.2))
    first, second, third = figure.subplots(1, 3)
    unit = f"residual of {sample.response} ({sample.unit})"
    for axes, x, label in (
        (first, fitted, f"expected ({sample.unit})"),
        (third, order, "order of runs"),
    ):
        axes.axhline(0, color=GREY, linewidth=1, linestyle="--")
        axes.plot(x, residuals, "o", color=OKABE_ITO[0], markersize=3)
        axes.set_xlabel(label)
    second.plot(quantiles, np.sort(residuals), "o", color=OKABE_ITO[0], markersize=3)
    second.plot(quantiles, slope * quantiles + intercept, color=GREY, linewidth=1)
    second.set_xlabel("normal quantile (standard deviations)")
    first.set_ylabel(unit)
    title(second, sample, "")
    data = pd.DataFrame(
        {"run": sample.order, "order": order, "expected": fitted, "residual": residuals}
    )
    return f"{sample.response}-residuals", figure, data


def _energy_time(study: Study) -> Drawn:
    assert study.energy_time is not None
    sample, seconds, lines = study.energy_time
    design = sample.design
    figure, axes = plain()
    codes = design.codes[:, 0] if design.names else np.zeros(design.runs, dtype=np.int64)
    levels = design.levels[0] if design.names else ("all runs",)
    for code in range(min(len(levels), MOST)):
        own = codes == code
        axes.plot(
            seconds[own],
            sample.values[own],
            MARKERS[code % len(MARKERS)],
            color=OKABE_ITO[code % len(OKABE_ITO)],
            markersize=4,
            label=text_of(levels[code]),
        )
    line, aside = lines[0], ""
    if line.slope.value is not None and line.intercept.value is not None:
        ends = np.array([np.nanmin(seconds), np.nanmax(seconds)])
        axes.plot(ends, line.intercept.value + line.slope.value * ends, color=GREY, linewidth=1)
        aside = f"all runs: {line.slope.value:.3g} W, R² {line.r_squared:.3f}"
    axes.set_xlabel("wall time (s)")
    axes.set_ylabel("energy (J)")
    axes.legend(title=text_of(design.names[0]) if design.names else None, **BESIDE)
    title(axes, sample, aside)
    data = pd.DataFrame({"run": sample.order, "wall_s": seconds, "energy_j": sample.values})
    for factor, name in enumerate(design.names):
        own_levels = [design.levels[factor][code] for code in design.codes[:, factor]]
        data[FACTOR + name] = own_levels
    return "energy-time", figure, data
