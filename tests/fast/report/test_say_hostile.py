# SPDX-License-Identifier: Apache-2.0
"""Names chosen by strangers reach a terminal only as text, by whatever path they come."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

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
HOSTILE = "evil" + "".join(f"{one}[31m" for one in CONTROLS) + "[bold]name[/bold]"
FORBIDDEN = frozenset(CONTROLS) - {"\n"}


def hostile() -> Attribution:
    """Makes every text that comes from outside hostile."""
    row = query_row(10**9, HOSTILE, server=HOSTILE, rung=HOSTILE, flags=(HOSTILE,))
    row = replace(row, keys={"fingerprint": HOSTILE, "tag:who": HOSTILE, "user": HOSTILE})
    found = typical()
    fixed = tuple(
        replace(one, shape=HOSTILE, keys={"process": HOSTILE}, server=HOSTILE)
        for one in found.fixed
    )
    return replace(
        found,
        rows=(row,),
        fixed=fixed,
        trace=replace(found.trace, host=HOSTILE, cpu=HOSTILE, start=HOSTILE, loss={HOSTILE: 3}),
        energy_source=replace(found.energy_source, name=HOSTILE, reason=HOSTILE),
        model=replace(found.model, notes=(HOSTILE,)),
        policy={"idle": HOSTILE, "by": "fingerprint", "where": HOSTILE},
        window_causes={HOSTILE: 1},
        anomalies={HOSTILE: 1},
    )


def assert_harmless(text: str) -> None:
    assert "evil" in text
    assert not FORBIDDEN & set(text)


@pytest.mark.parametrize("width", [60, 80, 120, 300])
def test_tables(width: int) -> None:
    assert_harmless(render(hostile(), color=False, width=width))


def test_csv_and_json() -> None:
    assert_harmless(to_csv(hostile()).replace("\r\n", "\n"))
    assert_harmless(to_json(hostile()))
    snapshot = Snapshot(hostile(), hostile(), 2.0, ended=True)
    assert_harmless("".join(json_lines(FakeSource(snapshot), Controls(), None)))
    lines = "".join(csv_lines(FakeSource(snapshot), Controls(), None))
    assert_harmless(lines.replace("\r\n", "\n"))


@pytest.mark.parametrize("keys", ["", "\r", "h"])
def test_the_live_screen(keys: str) -> None:
    state = ViewState(title=HOSTILE)
    state.accept(Snapshot(hostile(), hostile(), 2.0))
    for key in keys:
        state.press("enter" if key == "\r" else key, key)
    state.message = HOSTILE
    lines = compose(state, 160, 50)
    text = "\n".join(span.text for line in lines for span in line.spans)
    assert not FORBIDDEN & set(text)
    assert all("\n" not in span.text for line in lines for span in line.spans)


def test_what_is_drawn_is_harmless_whoever_made_it() -> None:
    assert_harmless(Span(0, HOSTILE).text)
    page = Page(200, color=False)
    page.print(HOSTILE)
    assert_harmless(page.text())
    assert "[bold]name[/bold]" in page.text(), "markup of strangers is text"


def test_what_is_said_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"left out: {HOSTILE}")
    said = capsys.readouterr().err
    assert_harmless(said)
    assert said.count("\n") == 1
    assert said.startswith("qjoule: left out: evil")


def test_an_error_that_nobody_foresaw_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    error = RuntimeError(HOSTILE)
    say_traceback(RuntimeError, error, None)
    assert_harmless(capsys.readouterr().err)


@pytest.mark.parametrize("command", ["attribute", "compare"])
def test_errors_of_the_command_line(tmp_path: Path, command: str) -> None:
    """Also names of files: a trace may come from anybody, who chose the names in it."""
    name = tmp_path / HOSTILE.replace("\x00", "").replace("/", "")
    # As bytes: the locale's encoding may lack some of the characters.
    paths = [str(name).encode()] * (2 if command == "compare" else 1)
    done = subprocess.run(
        [sys.executable, "-m", "qjoule", command, *paths], capture_output=True, check=False
    )
    said = done.stderr.decode(errors="replace")
    assert done.returncode != 0
    assert_harmless(said)
    assert said.count("\n") == 1


def test_a_file_that_one_looks_at_has_escapes() -> None:
    text = Meta(host=HOSTILE).to_json()
    assert_harmless(text)
    assert json.loads(text)["host"] == HOSTILE
