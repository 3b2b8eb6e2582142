# SPDX-License-Identifier: Apache-2.0
"""Counters per shape, server or workload as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from qjoule.api.command import shorten
from qjoule.api.screen import Column, Page, fit, lost, page_width, ruled_table
from qjoule.api.screen import format as fmt
from qjoule_studies.characterisation import Characterisation
from qjoule_studies.characterise import Estimate, Metric, Row

_MIN_WIDTH, _FALLBACK = 60, 160
_LOADINGS = 3  #: components shown in the table
_MULTIPLEXED = 0.9995  #: a share below this is shown as multiplexed


def render(result: Characterisation, *, width: int | None = None, color: bool = False) -> str:
    """The whole characterisation; `width` in cells, by default the terminal's."""
    page = Page(page_width(width, _MIN_WIDTH, _FALLBACK), color)
    cells = page_width(width, _MIN_WIDTH, _FALLBACK)
    hidden = _print_rows(page, result, cells)
    page.print()
    if hidden:
        page.print(Text(f"No room for {', '.join(hidden)}: see --json or --csv.", style="dim"))
    for line in _notes(result):
        page.print(Text(line, style="dim"))
    page.print()
    _print_components(page, result)
    return page.text()


def _print_rows(page: Page, result: Characterisation, cells: int) -> list[str]:
    """Prints the table; returns the titles of the metrics that have no room."""
    first = Column("name", {"fingerprint": "shape"}.get(result.by, result.by), 18, 0, "left", True)
    width = 8
    columns = [first, Column("cpu", "CPU", 10, 1)]
    for rank, metric in enumerate(result.metrics, 2):
        columns.append(Column(metric.name, metric.title, _cells(metric, width), rank))
    shown = fit(columns, cells)
    shown_keys = {column.key for column, _ in shown}
    table = ruled_table()
    for column, cells_wide in shown:
        table.add_column(
            column.title,
            justify=column.align,
            no_wrap=column.stretch,
            width=cells_wide,
            overflow="ellipsis" if column.stretch else "fold",
        )
    for row in result.rows:
        figures = [
            _figure(metric, row.metrics.get(metric.name))
            for metric in result.metrics
            if metric.name in shown_keys
        ]
        lead = [fmt.one_line(name_of(row, result))]
        if "cpu" in shown_keys:
            lead.append(fmt.duration(row.cpu_ns))
        table.add_row(*lead, *figures)
    page.print(table)
    return [metric.title for metric in result.metrics if metric.name not in shown_keys]


def _cells(metric: Metric, least: int) -> int:
    return max(least, *(len(word) for word in metric.title.split()))


def name_of(row: Row, result: Characterisation) -> str:
    """The name of a row among the others; includes its trace if there are several."""
    trace = row.trace if len(result.traces) > 1 or result.by == "trace" else ""
    servers = {other.server for other in result.rows if other.server}
    server = row.server if len(servers) > 1 or result.by == "server" else ""
    shape = row.shape or row.fingerprint
    if row.folded:
        shape = f"({row.folded:,} others)"
    return " ".join(part for part in (trace, server, shape) if part)


def _figure(metric: Metric, estimate: Estimate | None) -> str:
    """The value; below it, the interval if the counter did not count all the time."""
    if estimate is None:
        return fmt.UNKNOWN
    show = fmt.share if metric.is_share else fmt.significant
    value = show(estimate.value)
    if estimate.low is None or estimate.high is None:
        return f"{value}\n± {fmt.UNKNOWN}"
    if estimate.low == estimate.high:
        return value
    half = (estimate.high - estimate.low) / 2
    shown = f"{half * 100:.1f}" if metric.is_share else fmt.significant(half, 2)
    return f"{value}\n±{shown}"


def _notes(result: Characterisation) -> Iterator[str]:
    turns = [
        f"{metric.title} {fmt.share(result.counted(metric))}"
        for metric in result.metrics
        if result.counted(metric) < _MULTIPLEXED
    ]
    if turns:
        yield (
            f"Counted for a part of the CPU time: {', '.join(turns)}. Such figures are estimated "
            "from that part; ± is their 95 % interval."
        )
    for metric in result.metrics:
        if metric.note:
            yield f"{metric.title}: {metric.note}."
    if result.missing:
        events = sorted(set(result.missing.values()))
        yield f"Not recorded: {', '.join(events)}. Add them with `record --counters`."
    for trace in result.traces:
        loss = lost(dict(trace.loss), 0)
        if loss:
            yield f"{fmt.one_line(trace.name)}: lost {loss}."
    for flag in result.flags:
        yield f"Mind: {fmt.one_line(flag)}."


def _print_components(page: Page, result: Characterisation) -> None:
    for reason in result.compared.left_out:
        page.print(Text(f"Not compared: {shorten(fmt.one_line(reason), 120)}", style="dim"))
    if result.principal is None:
        page.print(f"No principal components: {result.no_components}.")
        return
    shown = min(_LOADINGS, len(result.principal.variance))
    table = ruled_table()
    table.add_column("principal components", min_width=20)
    for i in range(shown):
        table.add_column(f"PC{i + 1}", justify="right")
    explained = [fmt.share(float(share)) for share in result.principal.explained[:shown]]
    table.add_row("variance explained", *explained)
    for name, loading in zip(result.principal.columns, result.principal.loadings, strict=True):
        table.add_row(fmt.one_line(name), *(f"{value:+.2f}" for value in loading[:shown]))
    page.print(table)
    page.print()
    for line in _joins(result):
        page.print(line)


def _joins(result: Characterisation) -> Iterator[str]:
    """The clusters, nearest first: what is joined, and at which distance."""
    if result.linkage is None or result.principal is None:
        return
    names = [shorten(name_of(result.rows[i], result), 40) for i in result.compared.rows]

    space = f"Euclidean distance in {result.principal.large_components} components"
    yield f"Clusters (average linkage, {space}), nearest first:"
    for step, (a, b, distance, size) in enumerate(result.linkage.tolist()):
        joined = " + ".join(_cluster_name(int(cluster), names) for cluster in (a, b))
        yield f"  {distance:5.2f}  [{step + 1}] {fmt.one_line(joined)}, {int(size)} rows"


def _cluster_name(number: int, names: list[str]) -> str:
    return names[number] if number < len(names) else f"[{number - len(names) + 1}]"
