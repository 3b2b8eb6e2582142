# SPDX-License-Identifier: Apache-2.0
"""A study's statistics as text: means, tests, checks, pairs, energy against time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.style import Style
from rich.table import Table
from rich.text import Text

from qjoule.api.screen import Page, page_width, ruled_table
from qjoule.api.screen import format as fmt
from qjoule_studies.statistics.assumptions import Check
from qjoule_studies.statistics.design import BY
from qjoule_studies.statistics.pairwise import ALPHA, Pairs
from qjoule_studies.statistics.regression import Interval, Line
from qjoule_studies.statistics.sample import MEASURED_BY, Sample
from qjoule_studies.statistics.study import RANKS, WELCH, Findings, Response, Study

_MIN_WIDTH = 60
_FALLBACK = 80
_WIDE = 78
_MOST_ROWS = 40  #: rows of means; JSON and the figures' CSV have all
_MOST_PAIRS = 20  #: those that differ most
_HOLDS = {True: "holds", False: "fails", None: fmt.UNKNOWN}


class _Sheet(Page):
    """`narrow`: leaves out columns that are also in JSON, so that no figure is cut in two."""

    def __init__(self, width: int, color: bool) -> None:
        super().__init__(width, color)
        self.narrow = width < _WIDE


def render(study: Study, *, width: int | None = None, color: bool = False) -> str:
    """The study as text that ends with a line feed; `width` in cells, by default the terminal's."""
    page = _Sheet(page_width(width, _MIN_WIDTH, _FALLBACK), color)
    for response in study.responses:
        _response(page, response)
    _energy_time(page, study)
    _notes(page, study.notes)
    return page.text()


def _response(page: _Sheet, response: Response) -> None:
    sample = response.sample
    _title(page, f"{sample.response} in {sample.unit}")
    page.print(Text(_measured(sample)))
    page.print()
    _means(page, response)
    _notes(page, [*sample.notes, *_interval_note(sample), *response.notes])
    if response.tests is not None:
        _tests(page, response.tests)
        _pairs(page, response.tests.combinations, "combination")
        for name, pairs in response.tests.factors:
            _pairs(page, pairs, name)


def _title(page: _Sheet, title: str) -> None:
    page.print(Text(fmt.one_line(title), style=Style(bold=True)))


def _measured(sample: Sample) -> str:
    phrases = [
        f"{column.replace('_', ' ')} {' and '.join(fmt.one_line(value) for value in values[:4])}"
        for column, values in sample.measured_by.items()
        if column in MEASURED_BY
    ]
    mixed = " MIXED: see below." if sample.mixed else ""
    return f"{len(sample.values)} of {sample.all_runs} runs; {', '.join(phrases)}.{mixed}"


def _interval_note(sample: Sample) -> list[str]:
    if sample.own_interval is None:
        return []
    return [
        f"each run knows its own value to ±{sample.own_interval:.1%}; where that error is common "
        "to all runs, more of them do not reduce it"
    ]


def _means(page: _Sheet, response: Response) -> None:
    names = response.sample.design.names
    table = ruled_table()
    _name_column(table, BY.join(names) or "all runs")
    for heading in ("runs", "mean", "95 % interval", "sd", ""):
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    tests = response.tests
    letters = [group.letters for group in tests.combinations.groups] if tests else []
    for number, mean in enumerate(response.means[:_MOST_ROWS]):
        name = fmt.one_line(BY.join(mean.levels)) or fmt.UNKNOWN
        figures = _number(mean.mean), _range(mean.low, mean.high), _number(mean.sd)
        table.add_row(name, str(mean.runs), *figures, letters[number] if letters else "")
    page.print(table)
    _more(page, len(response.means))
    if any(letters):
        page.print(Text("A letter in common: not shown to differ.", style="dim"))
    page.print()


def _tests(page: _Sheet, tests: Findings) -> None:
    table, anova = ruled_table(total=True), tests.anova
    _name_column(table, f"ANOVA, type {'I' * anova.type}")
    sizes = () if page.narrow else ("part. η²", "ω²")
    for heading in ("share", "sum sq", "df", "F", "p", "Holm p", *sizes):
        _number_column(table, heading)
    for effect in anova.effects:
        table.add_row(
            fmt.one_line(effect.name),
            _percent(effect.eta_squared),
            _number(effect.sum_sq),
            str(effect.df),
            _number(effect.f),
            _p(effect.p),
            _p(effect.p_holm),
            *(
                _percent(size)
                for size in (effect.partial_eta_squared, effect.omega_squared)
                if not page.narrow
            ),
        )
    total = sum(effect.sum_sq for effect in anova.effects) + anova.sum_sq_error
    table.add_section()
    table.add_row(
        "error",
        _percent(anova.sum_sq_error / total if total else None),
        _number(anova.sum_sq_error),
        str(anova.df_error),
    )
    page.print(table)
    page.print()
    _checks(page, tests.assumptions.checks)
    _other_tests(page, tests)
    _decision(page, tests)
    _notes(page, anova.notes)


def _checks(page: _Sheet, checks: Sequence[Check]) -> None:
    table = ruled_table()
    table.add_column("assumption", max_width=24)
    table.add_column("")
    table.add_column("statistic", justify="right")
    table.add_column("p", justify="right")
    table.add_column("what it means", min_width=20)
    for check in checks:
        table.add_row(
            check.name, _HOLDS[check.holds], _number(check.statistic), _p(check.p), check.words
        )
    page.print(table)
    page.print()


def _other_tests(page: _Sheet, tests: Findings) -> None:
    table = ruled_table()
    _name_column(table, "where assumptions fail")
    for heading in ("effect", "F", "df", "p", "Holm p"):
        table.add_column(heading, justify="left" if heading == "effect" else "right")
    if tests.welch.note:
        table.add_row(WELCH, f"none: {fmt.one_line(tests.welch.note)}")
    for own in tests.welch.effects:
        df, name = f"{own.df}; {own.df_error:.1f}", fmt.one_line(own.name)
        table.add_row(WELCH, name, _number(own.f), df, _p(own.p), _p(own.p_holm))
    for row in tests.ranks.effects:
        df, name = f"{row.df}; {tests.ranks.df_error}", fmt.one_line(row.name)
        table.add_row(RANKS, name, _number(row.f), df, _p(row.p), _p(row.p_holm))
    page.print(table)
    page.print()


def _decision(page: _Sheet, tests: Findings) -> None:
    page.print(Text(f"What decides is the {tests.decides}: {tests.why}.", style=Style(bold=True)))
    for effect in tests.effects():
        if effect.p_holm is None:
            verdict = "no test"
        elif effect.p_holm < ALPHA:
            verdict = "makes a difference"
        else:
            verdict = "is not shown to make a difference"
        name = fmt.one_line(effect.name)
        share = f"; {_percent(effect.eta_squared)} of the variance" if effect.eta_squared else ""
        page.print(Text(f"  {name}: {verdict} (Holm p {_p(effect.p_holm)}{share})"))
    page.print()


def _pairs(page: _Sheet, pairs: Pairs, of: str) -> None:
    _title(page, f"Pairs by {of}, {pairs.method}, 95 % together")
    if of != "combination":
        groups = ", ".join(
            f"{fmt.one_line(group.name)} {_number(group.mean)} {group.letters}".rstrip()
            for group in pairs.groups[:_MOST_ROWS]
        )
        page.print(Text(f"Means: {groups}"))
    if pairs.pairs:
        table = ruled_table()
        _name_column(table, "pair")
        ends = () if page.narrow else ("its interval",)
        for heading in ("difference", "95 % interval", "p", "Hedges' g", *ends):
            _number_column(table, heading)
        ordered = sorted(pairs.pairs, key=lambda pair: -abs(pair.difference))
        for pair in ordered[:_MOST_PAIRS]:
            names = (pairs.groups[pair.first].name, pairs.groups[pair.second].name)
            table.add_row(
                " − ".join(fmt.one_line(name) for name in names),  # noqa: RUF001
                _number(pair.difference),
                _range(pair.low, pair.high),
                _p(pair.p),
                _number(pair.size.g),
                *([] if page.narrow else [_range(pair.size.low, pair.size.high)]),
            )
        page.print(table)
        _more(page, len(pairs.pairs), _MOST_PAIRS)
    _notes(page, pairs.notes)
    page.print()


def _energy_time(page: _Sheet, study: Study) -> None:
    if study.energy_time is None:
        return
    sample, _, lines = study.energy_time
    _title(page, "Energy (J) against time (s): the slope is a power in W")
    page.print(Text(_measured(sample)))
    table = ruled_table()
    _name_column(table, "runs of")
    shown = 4 if page.narrow else 6
    for heading in ("runs", "slope", "intercept", "R²", "Pearson", "Spearman")[:shown]:
        _number_column(table, heading)
    for line in lines[:_MOST_ROWS]:
        table.add_row(*_line(line)[: 1 + shown])
    page.print(table)
    _more(page, len(lines))
    page.print(Text("Below each value its 95 % interval.", style="dim"))
    page.print()


def _line(line: Line) -> tuple[str, ...]:
    name = f"{fmt.one_line(line.factor)} {fmt.one_line(line.level)}" if line.factor else "all"
    if line.note:
        return f"{name}: {line.note}", str(line.runs), *(fmt.UNKNOWN,) * 5
    return (
        name,
        str(line.runs),
        _interval(line.slope),
        _interval(line.intercept),
        _number(line.r_squared),
        _interval(line.pearson),
        _number(line.spearman.value),
    )


def _interval(interval: Interval) -> str:
    return f"{_number(interval.value)}\n{_range(interval.low, interval.high)}"


def _name_column(table: Table, heading: str) -> None:
    table.add_column(fmt.one_line(heading), overflow="fold", min_width=8)


def _number_column(table: Table, heading: str) -> None:
    """Figures are wrapped if a terminal is too narrow, and never truncated."""
    table.add_column(heading, justify="right", overflow="fold")


def _more(page: _Sheet, rows: int, most: int = _MOST_ROWS) -> None:
    if rows > most:
        page.print(Text(f"{rows - most} more: see --json.", style="dim"))


def _notes(page: _Sheet, notes: Iterable[str]) -> None:
    lines = [fmt.one_line(note) for note in notes]
    for note in lines:
        page.print(Text(f"note: {note}"))
    if lines:
        page.print()


def _number(value: float | None) -> str:
    """Three digits; numbers far from 1 have an exponent, since a sum of squares has no prefix."""
    if not fmt.is_known(value):
        return fmt.UNKNOWN
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.2e}"
    return fmt.significant(value)


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return fmt.UNKNOWN
    return f"{_number(low)} … {_number(high)}"


def _percent(value: float | None) -> str:
    return fmt.UNKNOWN if value is None else f"{value:.1%}"


def _p(value: float | None) -> str:
    if value is None:
        return fmt.UNKNOWN
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"
