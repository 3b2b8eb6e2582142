# SPDX-License-Identifier: Apache-2.0
"""Every screen and every file shows the same basic facts, and hostile names only as text.

That figures add up to what was measured, how certain the total is, who gets the idle energy, what
was lost, and which servers nobody saw.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fake_attribution import FakeSource, attribution, fixed_row, query_row, typical
from qjoule.commands.say import say, say_traceback
from qjoule.engine.accounts import throttled_note
from qjoule.model.result import PARTS, Attribution, Row, ServerChange
from qjoule.report.page_data import about
from qjoule.reporters.json_report import document, run_forms, to_arrow, to_json
from qjoule.reporters.live_export import csv_lines, json_lines, screen_document
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.result_columns import to_csv
from qjoule.reporters.table import render
from qjoule.reporters.writers import DataColumn, DataColumns, FlatTable
from qjoule.snapshots import Controls, Snapshot
from qjoule.trace.meta import Throttled

GRADES = ("measured", "estimated", "simulated")
Rows = list[dict[str, Any]]


def _snapshot(of: Attribution) -> Snapshot:
    return Snapshot(of, of, 2.0, ended=True)


def _view(of: Attribution) -> ViewState:
    state = ViewState()
    state.accept(_snapshot(of))
    return state


def _screen(of: Attribution, width: int) -> str:
    return "\n".join(line.plain() for line in compose(_view(of), width, 24))


def _table(of: Attribution, width: int) -> str:
    """The printed table, as one line."""
    return " ".join(render(of, width=width).split())


def _json_rows(of: dict[str, Any]) -> Rows:
    parsed = json.loads(json.dumps(of), parse_float=Decimal)
    return [*parsed["rows"], *parsed["fixed"]]


def _csv_rows(text: str) -> Rows:
    rows = list(csv.DictReader(io.StringIO(text)))
    return [{**row, "energy_j": Decimal(row["energy_j"])} for row in rows]


def _live_csv(of: Attribution) -> str:
    return "".join(csv_lines(FakeSource(_snapshot(of)), Controls(), None))


def _live_json(of: Attribution) -> dict[str, Any]:
    (line,) = json_lines(FakeSource(_snapshot(of)), Controls(), None)
    interval: dict[str, Any] = json.loads(line)["interval"]
    return interval


def _exported(of: Attribution) -> dict[str, Any]:
    interval: dict[str, Any] = screen_document(_view(of))["interval"]
    return interval


def _parquet_rows(of: Attribution) -> Rows:
    rows: Rows = to_arrow(of).to_pylist()
    return [{**row, "energy_j": Decimal(repr(row["energy_j"]))} for row in rows]


def _parquet_head(of: Attribution) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(to_arrow(of).schema.metadata[b"qjoule.attribution/1"])
    return head


DOCUMENTS = (document, _live_json, _exported, _parquet_head)
FLAT: dict[str, Callable[[Attribution], Rows]] = {
    "csv": lambda of: _csv_rows(to_csv(of)),
    "live csv": lambda of: _csv_rows(_live_csv(of)),
    "parquet": _parquet_rows,
}
ROWS = FLAT | {
    "json": lambda of: _json_rows(document(of)),
    "live json": lambda of: _json_rows(_live_json(of)),
    "exported screen": lambda of: _json_rows(_exported(of)),
}


@pytest.mark.parametrize("form", ROWS)
@given(
    st.lists(st.integers(0, 10**14), max_size=12),
    st.lists(st.integers(0, 10**14), min_size=6, max_size=6),
)
def test_energies_add_up_to_the_last_digit(
    form: str, energies: list[int], other_energies: list[int]
) -> None:
    """Nanojoules below 2^53 are what a double holds exactly in joules of nine decimals."""
    rows = tuple(query_row(energy, f"q{index}") for index, energy in enumerate(energies))
    result = attribution(rows, dict(zip(PARTS[1:], other_energies, strict=True)))
    total = sum(round(row["energy_j"] * 10**9) for row in ROWS[form](result))
    assert total == result.main.measured_nj == sum(energies) + sum(other_energies)


def test_a_described_column_has_its_type_in_every_file() -> None:
    """Not one that is guessed from its name: a number in a new column is no text."""
    columns: DataColumns[Row] = DataColumns(
        (
            DataColumn("new_count", int, lambda row: row.calls),
            DataColumn("new_j", float, lambda _: 1.5, lambda _: (1.0, 2.0), energy=True),
            DataColumn("seldom", str, lambda _: None, optional=True),
        )
    )
    row = query_row(10**9, "q")
    table = FlatTable(columns.types, [columns.flat(row), columns.flat(row, energy_known=False)])
    arrow = table.arrow("head", {})
    assert [str(kind) for kind in arrow.schema.types] == ["int64", *["double"] * 3, "string"]
    assert arrow.to_pylist()[0] == columns.flat(row) | {"new_count": row.calls, "new_j": 1.5}
    assert table.csv().splitlines() == [
        "new_count,new_j,new_j_low95,new_j_high95,seldom",
        f"{row.calls},1.5,1.0,2.0,",
        f"{row.calls},,,,",
    ]
    assert columns.json(row) == {"new_count": row.calls, "new_j": 1.5, "new_j_ci95": (1.0, 2.0)}
    assert columns.json(row, energy_known=False)["new_j"] is None
    assert FlatTable(columns.types, []).csv().startswith("new_count,")


@pytest.mark.parametrize("grade", GRADES)
@pytest.mark.parametrize("policy", ["separate", "even"])
def test_files_say_the_grade_the_idle_policy_and_the_loss(grade: str, policy: str) -> None:
    loss = {"PUMP": 1234, "SWITCH": 5}
    result = typical(grade=grade, loss=loss, complete=False)
    result = replace(result, policy={**result.policy, "idle": policy})
    for rows_of in FLAT.values():
        for row in rows_of(result):
            assert (row["grade"], row["idle_policy"]) == (grade, policy)
            assert (row["loss"], row["complete"]) == ("pump=1234 switch=5", "no")
    for of in DOCUMENTS:
        assert of(result)["energy_source"]["grade"] == grade
        assert of(result)["policy"]["idle"] == policy
        assert of(result)["trace"]["loss"] == loss
        assert of(result)["trace"]["complete"] is False


@pytest.mark.parametrize("grade", GRADES)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_screens_say_the_grade_the_idle_policy_and_the_loss(grade: str, width: int) -> None:
    result = typical(grade=grade, loss={"SWITCH": 1234}, complete=False, unattributed_windows=3)
    result = replace(result, policy={**result.policy, "idle": "even"})
    live = _screen(result, width)
    for phrase in (f"TOTAL {grade}", "idle even", "lost: 1,234"):
        assert phrase in live
    printed = _table(result, width)
    for phrase in (
        f"TOTAL {grade}",
        "spread evenly",
        "1,234 context switches not shown by the kernel",
        "NO: the trace was cut off",
        "3 of 625",
        "mariadb:3306 symbol",
    ):
        assert phrase in printed


DRAM = "it shows 200.0 W beside 6.0 W of its package 0"


def _dark() -> Attribution:
    """A traced server that exited, one that runs untraced and used 2 J, and DRAM in no row."""
    gone = ServerChange("exited", "mariadb:3306", since="2026-11-21T03:31:07.5Z")
    process = "mariadbd (untraced, pid 7)"
    hides = ServerChange(
        "untraced", "mariadbd", since="2026-11-21T03:31:09Z", pid=7, process=process
    )
    row = replace(fixed_row("other_processes", 2 * 10**9, 10**10), keys={"process": process})
    result = attribution((query_row(10**9),), {"other_processes": 2 * 10**9})
    source = replace(result.energy_source, domains=("package",), left_out={"dram": DRAM})
    trace = replace(result.trace, changes=(gone, hides))
    return replace(result, trace=trace, energy_source=source, fixed=(row, *result.fixed[1:]))


def test_what_nobody_sees_is_in_every_file() -> None:
    result = _dark()
    for of in DOCUMENTS:
        assert of(result)["energy_source"]["left_out"] == {"dram": DRAM}
        gone, hides = of(result)["trace"]["changes"]
        assert (gone["what"], gone["name"], gone["energy_j"]) == ("exited", "mariadb:3306", None)
        assert (hides["what"], hides["pid"], hides["energy_j"]) == ("untraced", 7, 2.0)
        assert hides["cpu_ns"] == result.fixed[0].cpu_ns
    for rows_of in FLAT.values():
        for row in rows_of(result):
            assert "mariadb:3306 exited at 2026-11-21T03:31:07Z; " in row["servers_not_seen"]
            assert "mariadbd (process 7) ran untraced since" in row["servers_not_seen"]
            assert row["domains_left_out"] == f"dram: {DRAM}"
    assert any("ran untraced" in problem for problem in run_forms(result, "a").problems)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_what_nobody_sees_is_on_every_screen(width: int) -> None:
    result = _dark()
    notice = "mariadb:3306 exited, mariadbd runs untraced 2.00 J"
    assert notice in _screen(result, width)
    printed = _table(result, width)
    assert f"complete yes · BUT {notice}" in printed
    assert "mariadbd (process 7) ran untraced since 2026-11-21T03:31:09Z" in printed
    assert "2.00 J (1.80 J to 2.20 J) are among the other processes" in printed
    assert f"left out dram, which is in no row: {DRAM}" in printed
    assert "dram left out: it shows 200.0 W" in _screen(
        replace(result, trace=typical().trace), width
    )
    amd = replace(result, energy_source=replace(result.energy_source, left_out={}))
    assert "arXiv" not in _table(amd, width)
    amd = replace(amd, trace=replace(amd.trace, cpu="AMD EPYC 7502"))
    assert _table(amd, width).count("arXiv:2108.00808") == 1


def _everywhere(result: Attribution) -> list[str]:
    screens = [_table(result, 400), _screen(result, 500), str(about("trace", result))]
    return [*screens, *(str(of(result)) for of in (*DOCUMENTS, *FLAT.values()))]


def test_what_shows_hidden_sessions_and_an_alarm_are_in_every_output() -> None:
    hides = ServerChange("hidden", "mariadb:3306", pid=7)
    never = replace(hides, name="redis:6379", why="Redis has none")
    calm = typical(loss={"opaque_session": 50})
    calm = replace(calm, trace=replace(calm.trace, changes=(hides, never)))
    lost = {**calm.trace.loss, "framing": sum(row.calls for row in calm.rows)}
    bad = replace(calm, trace=replace(calm.trace, loss=lost))
    assert "mariadb:3306 hides sessions: --attach symbol" in _screen(calm, 60)
    for result, alarms in (calm, False), (bad, True):
        for text in _everywhere(result):
            assert "--attach symbol shows those of mariadb:3306" in text
            assert "--attach symbol is not possible for redis:6379: Redis has none" in text
            assert "exited" not in text and ("50.0 % of requests were lost" in text) is alarms


def test_that_heat_throttled_cpus_is_in_every_output() -> None:
    said = throttled_note(Throttled(core=7), "in the last minute")
    cool = typical()
    note = replace(cool.model, notes=(*cool.model.notes, said))  # as every result has it
    hot = replace(cool, trace=replace(cool.trace, throttled=said), model=note)
    for result, is_hot in (cool, False), (hot, True):
        for text in _everywhere(result):
            assert (said in text) is is_hot
    assert "the CPU was too hot in the last minute" in _screen(hot, 60)


# ---- names that strangers chose ------------------------------------------------------------------

#: ESC, an 8-bit CSI, BEL, line ends, direction overrides, invisible characters.
CONTROLS = "\x1b\x9b\x07\r\n\x0b\x0c\x1c\x85\u2028\u2029\u202e\u2066\u200b\u00ad\x00\x7f"
HOSTILE = "evil" + "".join(f"{control}[31m" for control in CONTROLS) + "[bold]name[/bold]"
FORBIDDEN = frozenset(CONTROLS) - {"\n"}


def hostile(text: str = HOSTILE) -> Attribution:
    """An attribution in which every text that comes from outside is `text`."""
    row = query_row(10**9, text, server=text, attach_mode=text, flags=(text,))
    row = replace(row, keys={"fingerprint": text, "tag:who": text, "user": text})
    plain = typical()
    fixed = tuple(
        replace(row, shape=text, keys={"process": text}, server=text) for row in plain.fixed
    )
    return replace(
        plain,
        rows=(row,),
        fixed=fixed,
        trace=replace(plain.trace, host=text, cpu=text, start=text, loss={text: 3}, throttled=text),
        energy_source=replace(plain.energy_source, name=text, reason=text, left_out={text: text}),
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
    assert_harmless("".join(json_lines(FakeSource(_snapshot(hostile())), Controls(), None)))
    assert_harmless(_live_csv(hostile()).replace("\r\n", "\n"))


@pytest.mark.parametrize("keys", ["", "\r", "h"])
def test_the_live_screen(keys: str) -> None:
    state = ViewState(title=HOSTILE)
    state.accept(Snapshot(hostile(), hostile(), 2.0))
    for key in keys:
        state.press("enter" if key == "\r" else key, key)
    state.message = HOSTILE
    spans = [span.text for line in compose(state, 160, 50) for span in line.spans]
    assert not any((FORBIDDEN | {"\n"}) & set(text) for text in spans)


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
    arguments: list[str | bytes] = [sys.executable, "-m", "qjoule", "attribute", str(name).encode()]
    done = subprocess.run(arguments, capture_output=True, check=False)
    message = done.stderr.decode(errors="replace")
    assert done.returncode != 0
    assert_harmless(message)
    assert message.count("\n") == 1
