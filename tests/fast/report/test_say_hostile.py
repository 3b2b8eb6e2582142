# SPDX-License-Identifier: Apache-2.0
"""Names chosen by strangers reach a terminal only as text, by whatever path they come."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from fake_attribution import query_row, typical
from fake_source import FakeSource
from qjoule.commands.say import say, say_traceback
from qjoule.model.result import Attribution
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.json_report import to_json
from qjoule.reporters.live_frame import Span
from qjoule.reporters.live_lines import csv_lines, json_lines
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.plain import Page
from qjoule.reporters.table import render
from qjoule.snapshots import Controls, Snapshot
from qjoule.trace.meta import Meta

#: ESC, an 8-bit CSI, BEL, line ends, direction overrides, invisible characters.
CONTROLS = "\x1b\x9b\x07\r\n\x0b\x0c\x1c\x85\u2028\u2029\u202e\u2066\u200b\u00ad\x00\x7f"
HOSTILE = "evil" + "".join(f"{control}[31m" for control in CONTROLS) + "[bold]name[/bold]"
FORBIDDEN = frozenset(CONTROLS) - {"\n"}


def hostile(text: str = HOSTILE) -> Attribution:
    """An attribution in which every text that comes from outside is `text`."""
    row = query_row(10**9, text, server=text, rung=text, flags=(text,))
    row = replace(row, keys={"fingerprint": text, "tag:who": text, "user": text})
    plain = typical()
    fixed = tuple(
        replace(row, shape=text, keys={"process": text}, server=text) for row in plain.fixed
    )
    return replace(
        plain,
        rows=(row,),
        fixed=fixed,
        trace=replace(plain.trace, host=text, cpu=text, start=text, loss={text: 3}),
        energy_source=replace(plain.energy_source, name=text, reason=text),
        model=replace(plain.model, notes=(text,)),
        policy={"idle": text, "by": "fingerprint", "where": text},
        window_causes={text: 1},
        anomalies={text: 1},
    )


def assert_harmless(text: str) -> None:
    assert "evil" in text
    assert not FORBIDDEN & set(text)


@pytest.mark.parametrize("width", [20, 60, 120, 300])
@pytest.mark.parametrize("text", [HOSTILE, "evil" + "表" * 300, "evil" + "x" * 10_000, ""])
def test_a_table_shows_them_as_text_that_fits(text: str, width: int) -> None:
    shown = render(hostile(text), color=False, width=width)
    assert not FORBIDDEN & set(shown)
    assert ("evil" in shown) == bool(text)
    assert all(cell_len(line) <= max(40, width) for line in shown.splitlines())


def test_csv_and_json() -> None:
    assert_harmless(to_csv(hostile()).replace("\r\n", "\n"))
    assert_harmless(to_json(hostile()))
    source = FakeSource(*2 * (Snapshot(hostile(), hostile(), 2.0, ended=True),))
    assert_harmless("".join(json_lines(source, Controls(), None)))
    lines = "".join(csv_lines(source, Controls(), None))
    assert_harmless(lines.replace("\r\n", "\n"))


@pytest.mark.parametrize("keys", ["", "\r", "h"])
def test_the_live_screen(keys: str) -> None:
    state = ViewState(title=HOSTILE)
    state.accept(Snapshot(hostile(), hostile(), 2.0))
    for key in keys:
        state.press("enter" if key == "\r" else key, key)
    state.message = HOSTILE
    spans = [span.text for line in compose(state, 160, 50) for span in line.spans]
    assert not any((FORBIDDEN | {"\n"}) & set(text) for text in spans)


def test_spans_and_pages_are_harmless_whoever_made_them() -> None:
    assert_harmless(Span(0, HOSTILE).text)
    page = Page(200, color=False)
    page.print(HOSTILE)
    assert_harmless(page.text())
    assert "[bold]name[/bold]" in page.text(), "markup of strangers is text"


def test_messages_and_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"left out: {HOSTILE}")
    message = capsys.readouterr().err
    assert_harmless(message)
    assert message.count("\n") == 1
    assert message.startswith("qjoule: left out: evil")
    say_traceback(RuntimeError, RuntimeError(HOSTILE), None)
    assert_harmless(capsys.readouterr().err)


def test_an_error_that_names_a_file(tmp_path: Path) -> None:
    name = tmp_path / HOSTILE.replace("\x00", "").replace("/", "")
    # As bytes: the locale's encoding may lack some of the characters.
    words: list[str | bytes] = [sys.executable, "-m", "qjoule", "attribute", str(name).encode()]
    done = subprocess.run(words, capture_output=True, check=False)
    message = done.stderr.decode(errors="replace")
    assert done.returncode != 0
    assert_harmless(message)
    assert message.count("\n") == 1


def test_meta_json_has_escapes() -> None:
    text = Meta(host=HOSTILE).to_json()
    assert_harmless(text)
    assert json.loads(text)["host"] == HOSTILE
