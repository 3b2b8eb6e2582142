# SPDX-License-Identifier: Apache-2.0
"""A screen as lines of styled spans, and the header of every mode: total power, its source, and
what is missing. Pure data, for a terminal or a test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from qjoule.model.result import Attribution
from qjoule.reporters import format as fmt
from qjoule.reporters import missing, server_changes
from qjoule.reporters.live_state import SORTS, ViewState
from qjoule.reporters.missing import alarm
from qjoule.reporters.provenance import attach_modes, graded, has_energy
from qjoule.reporters.waits import notes_on_waits, stolen_words
from qjoule.shapes.safe_text import sanitise

ELLIPSIS = "…"


@dataclass(frozen=True)
class Span:
    """Text at column `x`, in one of the styles of `live_view.STYLES`."""

    x: int
    text: str
    style: str = ""

    def __post_init__(self) -> None:
        """Sanitises the text, whatever its origin."""
        object.__setattr__(self, "text", sanitise(self.text))


@dataclass(frozen=True)
class Line:
    """Spans from left to right that do not overlap; `style` fills the rest of the line."""

    spans: tuple[Span, ...] = ()
    style: str = ""

    def plain(self) -> str:
        text = ""
        for span in self.spans:
            text = set_cell_size(text, max(span.x, cell_len(text))) + span.text
        return text


def cut(text: str, width: int) -> str:
    """Cuts `text` to at most `width` cells, with an ellipsis if something is left out."""
    if cell_len(text) <= width:
        return text
    return (set_cell_size(text, width - 1).rstrip() + ELLIPSIS) if width > 0 else ""


def place(text: str, x: int, width: int, *, right: bool = False, style: str = "") -> Span:
    """Places `text`, cut to `width` cells, in a column at `x`."""
    visible = cut(text, width)
    return Span(x + (width - cell_len(visible) if right else 0), visible, style)


def flow(items: Iterable[tuple[str, str]], width: int, x: int = 1) -> Line:
    """Joins (text, style) items by dots; items that do not fit are cut or left out."""
    spans: list[Span] = []
    for text, style in items:
        if not text:
            continue
        if spans:
            if x + 3 + 4 > width:
                break
            spans.append(Span(x, " · ", "dim"))
            x += 3
        visible = cut(text, max(0, width - x))
        spans.append(Span(x, visible, style))
        x += cell_len(visible)
        if visible != text:
            break
    return Line(tuple(spans))


def wrap(text: str, width: int) -> list[str]:
    """Splits `text` into pieces of at most `width` cells, at blanks if possible."""
    pieces: list[str] = []
    for word in text.split(" "):
        if pieces and cell_len(pieces[-1]) + 1 + cell_len(word) <= width:
            pieces[-1] += " " + word
        else:
            pieces += _chop(word, width)
    return pieces or [""]


def clip(line: Line, width: int) -> Line:
    """Cuts `line` to `width` cells."""
    inside = (Span(s.x, cut(s.text, width - s.x), s.style) for s in line.spans if s.x < width)
    return Line(tuple(inside), line.style)


def fill(lines: Sequence[Line], height: int) -> list[Line]:
    """Pads or cuts to exactly `height` lines."""
    return [*lines[:height], *([Line()] * (height - len(lines)))]


def _chop(word: str, width: int) -> list[str]:
    pieces = [""]
    for character in word:
        if cell_len(pieces[-1]) + cell_len(character) > width:
            pieces.append("")
        pieces[-1] += character
    return pieces


_GRADE_STYLES = {"measured": "good", "estimated": "warn", "simulated": "bad", "none": "bad"}
_TREND_FROM = 100  #: screen width in columns from which the total's history is drawn


def header(state: ViewState, width: int) -> list[Line]:
    """Returns four lines for any width."""
    attribution = state.attribution
    if attribution is None:
        ended = "the source ended without a snapshot"
        waits = ended if state.ended else "waiting for the first interval"
        return [
            flow([("qjoule top", "title"), (fmt.one_line(state.title), "")], width),
            flow([(waits, "dim")], width),
            Line(),
            _status(state, width),
        ]
    return [
        _title(state, attribution, width),
        _provenance(attribution, width),
        _attach_modes(attribution, width),
        _status(state, width),
    ]


def _title(state: ViewState, attribution: Attribution, width: int) -> Line:
    source = attribution.energy_source
    seconds = attribution.trace.duration_s
    power_w = (
        attribution.main.measured_nj * 1e-9 / seconds
        if has_energy(attribution) and seconds > 0
        else None
    )
    style = _GRADE_STYLES.get(source.grade, "bad")
    total = f"{fmt.watts(power_w)} W {fmt.one_line(source.main_domain)}".rstrip()
    right = [Span(0, total, "title"), Span(0, graded(attribution), style)]
    if width >= _TREND_FROM:
        right.insert(0, Span(0, fmt.sparkline(list(state.power_w), width // 5), "accent"))
    right_width = sum(cell_len(span.text) + 2 for span in right)
    host = fmt.one_line(attribution.trace.host)
    items = [("qjoule top", "title"), (host, ""), (fmt.one_line(state.title), "dim")]
    x = max(1, width - right_width + 1)
    # If there is no room for both, the power is shown, because it matters most.
    spans = list(flow(items, x - 2).spans) if x > len("qjoule top") + 2 else []
    for span in right:
        spans.append(place(span.text, x, max(0, width - x), style=span.style))
        x += cell_len(span.text) + 2
    return Line(tuple(spans))


def _provenance(attribution: Attribution, width: int) -> Line:
    """Shows losses on narrow screens too: in words, or as a count."""
    source, loss = attribution.energy_source, attribution.trace.loss
    gaps = attribution.unattributed_windows
    names_source = source.name not in ("", "none", source.grade)  # the grade is in the title

    def items(lost: str) -> list[tuple[str, str]]:
        return [
            (fmt.one_line(source.name), "dim") if names_source else ("", ""),
            (f"idle {fmt.one_line(attribution.policy.get('idle', fmt.UNKNOWN))}", "dim"),
            (f"lost: {lost}", "dim" if lost == missing.NOTHING else "warn"),
            (f"{fmt.count(gaps)} windows without energy", "bad") if gaps else ("", ""),
            _calibration(attribution),
            (_coverage(attribution), "dim"),
            (stolen_words(attribution), "warn"),
            (_tracer(attribution), "dim"),
        ]

    losses = [missing.loss(attribution)]
    if loss:
        losses += [missing.lost(loss), fmt.count(sum(loss.values()))]
    lines = [items(lost) for lost in losses]
    fitting = next((line for line in lines if _fits(line, width)), lines[-1])
    odd = missing.anomalies(attribution)
    rest = [(f"oddities: {odd}" if odd else "", "warn"), (fmt.one_line(source.reason), "dim")]
    return flow([*fitting, *rest], width)


def _attach_modes(attribution: Attribution, width: int) -> Line:
    """Puts problems first, so that they are visible at any width: losses, then untraced servers."""
    alarm_text, untraced = alarm(attribution), ", ".join(server_changes.untraced(attribution))
    items = [(f"ALARM: {alarm_text}" if alarm_text else "", "bad"), (untraced, "bad")]
    left_out = attribution.energy_source.left_out.items()
    items += [(fmt.one_line(f"{name} left out: {why}"), "bad") for name, why in left_out]
    items.append((fmt.one_line(attribution.trace.throttled), "bad"))
    return flow([*items, (f"attach {attach_modes(attribution)}", "dim")], width)


def _fits(items: list[tuple[str, str]], width: int) -> bool:
    return flow(items, width).plain() == flow(items, 1 << 16).plain()


def _calibration(attribution: Attribution) -> tuple[str, str]:
    """Returns one word; the reports say why a calibration does not fit."""
    model = attribution.model
    if model.calibrated and model.calibration_flags:
        return "calibrated, in doubt", "warn"
    return ("calibrated" if model.calibrated else "not calibrated"), "dim"


def _tracer(attribution: Attribution) -> str:
    """Returns the tracer's own cost: share of one CPU, and of the energy."""
    seconds = attribution.trace.duration_s
    rows = [row for row in attribution.fixed if row.kind == "tracer"]
    cpu = sum(row.cpu_ns for row in rows) * 1e-9 / seconds if rows and seconds > 0 else None
    energy = None
    if has_energy(attribution) and attribution.main.measured_nj:
        energy = attribution.main.parts_nj.get("tracer", 0) / attribution.main.measured_nj
    return f"tracer {fmt.share(cpu)} CPU, {fmt.share(energy)} E"


def _status(state: ViewState, width: int) -> Line:
    arrow = "▼" if state.descending else "▲"
    filtered = fmt.one_line(state.filter)
    attribution = state.attribution
    where = fmt.one_line(attribution.policy.get("where", "")) if attribution is not None else ""
    waits = notes_on_waits(attribution.rows) if attribution is not None and state.waits else ()
    return flow(
        [
            ("PAUSED", "warn") if state.paused else ("", ""),
            ("END OF TRACE", "warn") if state.ended else ("", ""),
            (_span(state), ""),
            (f"filter {filtered!r}", "accent") if filtered else ("", ""),
            (f"where {where}", "accent") if where else ("", ""),
            *((" ".join(note), "warn") for note in waits),
            (f"by {fmt.one_line(state.group)}", ""),
            (f"{SORTS[state.sort][0]} {arrow}", ""),
        ],
        width,
    )


def _span(state: ViewState) -> str:
    if state.snapshot is None:
        return f"every {fmt.duration(state.interval_s * 1e9)}"
    elapsed = fmt.duration(state.snapshot.elapsed_s * 1e9)
    if state.cumulative:
        return (
            f"{fmt.duration(state.snapshot.total.trace.duration_s * 1e9)} since reset, at {elapsed}"
        )
    return f"last {fmt.duration(state.snapshot.interval.trace.duration_s * 1e9)}, at {elapsed}"


def _coverage(attribution: Attribution) -> str:
    if attribution.only_threads:
        return "by thread, no queries"
    return f"coverage {fmt.share(attribution.coverage)}"
