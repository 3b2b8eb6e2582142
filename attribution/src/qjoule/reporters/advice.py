# SPDX-License-Identifier: Apache-2.0
"""Measured advice: a table with the evidence below each line, and JSON (`qjoule.advice/1`)."""

from __future__ import annotations

from collections.abc import Callable

from rich.style import Style
from rich.text import Text

from qjoule.engine.advice import KINDS, Advice, Advised, Figures
from qjoule.reporters import format as fmt
from qjoule.reporters import missing
from qjoule.reporters.labels import query_label
from qjoule.reporters.plain import Page, notes_grid, page_width, ruled_table
from qjoule.reporters.provenance import graded, heading
from qjoule.reporters.writers import finite, json_text
from qjoule.shapes.safe_text import shorten

SCHEMA = "qjoule.advice/1"
_MIN_WIDTH = 60
_FALLBACK = 120  #: columns if the terminal's width is unknown
_ROWS = 20  #: rows of the table; JSON has all
_LONGEST = 300  #: characters of a statement
NAMES = dict(
    zip(
        KINDS,
        (
            "add an index",
            "keep a sort in memory",
            "select fewer columns",
            "prepare the statement",
            "join instead of N+1 calls",
            "notify instead of polling",
            "hold the lock for less time",
            "use fewer workers",
        ),
        strict=True,
    )
)
_LEGEND = (
    "Saved: at most so much, of this trace and with its 95 % interval. Savings of one statement "
    "overlap, and those below the resolution or below 1 % of all queries are not advised."
)


def _of_samples(what: str) -> Callable[[Figures], str]:
    return lambda figures: (
        f"{fmt.count(figures['samples'])} of {fmt.count(figures['of_samples'])} samples of its "
        f"stacks ({fmt.share(figures['samples'] / figures['of_samples'])}) are in functions "
        f"that {what}"
    )


def _loops(figures: Figures) -> str:
    per = figures["calls"] / figures["loops"]
    rows = "one for each of its rows" if figures["rows_known"] else "rows are not recorded"
    after = shorten(fmt.one_line(figures["after"]), _LONGEST)
    return (
        f"{fmt.count(figures['calls'])} calls in {fmt.count(figures['loops'])} loops of {per:.3g}, "
        f"{rows}, each directly after: {after}"
    )


def _polls(figures: Figures) -> str:
    empty = "nearly all found nothing" if figures["rows_known"] else "rows are not recorded"
    share = figures["awake_share"]
    awake = f"; {fmt.share(share)} of their joules are power of packages that they kept awake"
    return (
        f"{fmt.count(figures['calls'])} calls, one every {fmt.duration(figures['period_ns'])} of a "
        f"session that rests in between; {empty}{awake if share else ''}"
    )


def _convoy(figures: Figures) -> str:
    return (
        f"{fmt.share(figures['share'])} of its latency is waiting for locks "
        f"({fmt.duration(figures['lock_ns_per_call'])} a call); {fmt.count(figures['together'])} "
        f"of {fmt.count(figures['calls'])} such calls waited while another one did. "
        "Saved is what the machine at rest drew meanwhile"
    )


_EVIDENCE: dict[str, Callable[[Figures], str]] = {
    "scan": _of_samples("read a table from end to end, ten times more than send rows"),
    "spill": _of_samples("write runs of a sort to disk and merge them"),
    "width": _of_samples("make and send the columns of SELECT *"),
    "parsing": _of_samples("parse its text"),
    "parallel": _of_samples("start parallel workers, end them, or pass rows between them"),
    "n+1": _loops,
    "polling": _polls,
    "lock": _convoy,
}


def evidence(advice: Advice) -> str:
    """The figures behind an advice, as one line without control characters."""
    return fmt.one_line(_EVIDENCE[advice.kind](advice.figures))


def render(advised: Advised, *, width: int | None = None, color: bool = False) -> str:
    """Returns the advice as text that ends with a line feed. `width`: cells, else the
    terminal's."""
    page = Page(page_width(width, _MIN_WIDTH, _FALLBACK), color)
    page.print(notes_grid(heading(advised.result)))
    page.print()
    if advised.advice:
        table = ruled_table(leading=1)
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("saved ± 95 %", justify="right", no_wrap=True)
        table.add_column("advice", min_width=14, max_width=27)
        table.add_column("statement and evidence", overflow="fold", min_width=14)
        for number, advice in enumerate(advised.advice[:_ROWS], 1):
            low, high = advice.saved_nj_ci95
            saved = fmt.with_interval(advice.saved_nj / 1e9, (low / 1e9, high / 1e9))
            about = Text(shorten(query_label(advice.row), _LONGEST), style=Style(bold=True))
            about.append("\n" + evidence(advice), style=Style(bold=False, dim=True))
            table.add_row(str(number), saved, NAMES[advice.kind], about)
        page.print(table)
    else:
        page.print(Text("Nothing is advised."))
    page.print()
    page.print(notes_grid(fmt.safe_notes(_notes(advised))))
    if advised.advice:
        page.print(Text(_LEGEND, style="dim"))
    return page.text()


def _notes(advised: Advised) -> list[tuple[str, str]]:
    lines = []
    if (hidden := len(advised.advice) - _ROWS) > 0:
        lines.append(("more", f"{hidden:,} are not shown: --json has all"))
    reasons: dict[str, list[str]] = {}
    for kind, reason in advised.not_judged.items():
        reasons.setdefault(reason, []).append(kind)
    for reason, kinds in reasons.items():
        lines.append(("", f"not judged: {', '.join(kinds)}, because {reason}"))
    return [*lines, ("loss", missing.loss(advised.result))]


def to_json(advised: Advised) -> str:
    """Returns the document; unknown values are null."""
    result = advised.result
    document = {
        "schema": SCHEMA,
        "grade": graded(result),
        "policy": result.policy,
        "loss": result.trace.loss,
        "complete": result.trace.complete,
        "queries_j": fmt.in_joules(result.main.parts_nj["queries"]),
        "advice": [
            {
                "kind": advice.kind,
                "fingerprint": advice.row.keys["fingerprint"],
                "shape": advice.row.shape,
                "server": advice.row.server,
                "saved_at_most_j": advice.saved_nj / 1e9,
                "saved_at_most_j_ci95": [end / 1e9 for end in advice.saved_nj_ci95],
                "evidence": evidence(advice),
                "figures": dict(advice.figures),
            }
            for advice in advised.advice
        ],
        "not_judged": dict(advised.not_judged),
    }
    return json_text(finite(document))
