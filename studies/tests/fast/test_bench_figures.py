# SPDX-License-Identifier: Apache-2.0
"""From a run's trace and its client's answer to its row in the table."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from attribute_trace import BEGIN_NS, MS, at, write
from fake_study import outcome
from qjoule_studies.client import Seen, read_answer
from qjoule_studies.design import Slot
from qjoule_studies.energy import Figures, figures
from qjoule_studies.recording import NotRecorded, RunFailed, _judged
from qjoule_studies.rows import Head, done

HEAD = Head(1, Slot(1, 1, {"size": 3}), "2026-01-01T00:00:00Z", "a machine", "separate")
SEEN = Seen(outcome(), 5, 9)


def of_span(directory: Path, begin_ms: float, end_ms: float, **changed: Any) -> Figures:
    return figures(write(directory, **changed), at(begin_ms), at(end_ms), "separate")


def test_figures_are_of_the_windows_that_the_span_touches(tmp_path: Path) -> None:
    """The trace has two windows of 20 ms, of 1 J and 2 J."""
    first = of_span(tmp_path / "a", 1, 19)
    assert first.energy_j == pytest.approx(1.0)
    assert first.power_w == pytest.approx(1.0 / 0.020)
    second = of_span(tmp_path / "b", 25, 40)
    assert second.energy_j == pytest.approx(2.0)
    whole = of_span(tmp_path / "c", 19, 21)
    assert whole.energy_j == pytest.approx(3.0)


def test_what_the_server_did_is_told_from_the_rest(tmp_path: Path) -> None:
    """The first window has 20 ms of queries, 5 ms of the server's purge thread, and
    nothing else.
    """
    found = of_span(tmp_path, 0, 20)
    assert found.server_cpu_s == pytest.approx(0.025)
    assert found.queries_j is not None and found.background_j is not None
    assert found.queries_j / found.background_j == pytest.approx(4)
    assert found.served_j is not None
    low, high = found.served_j
    assert low < found.queries_j + found.background_j < high
    assert (found.grade, found.energy_source) == ("simulated", "replay")


@pytest.mark.parametrize(
    ("cause", "lost_ns", "flags"),
    [
        ("pump", 0, ("lost_records",)),
        ("switch", 0, ("hidden_switches",)),
        ("switch", 5 * MS, ("lost_records",)),
    ],
)
def test_loss_is_a_flag(tmp_path: Path, cause: str, lost_ns: int, flags: tuple[str, ...]) -> None:
    lost = {"t_ns": BEGIN_NS + MS, "cpu": 0, "cause": cause, "count": 3, "lost_ns": lost_ns}
    found = of_span(tmp_path, 0, 40, loss=[lost])
    assert found.flags == flags
    cut_off = of_span(tmp_path / "cut", 0, 40, meta={"complete": False})
    assert cut_off.flags == ("incomplete_trace",)


def test_joules_per_operation_are_the_servers() -> None:
    found = Figures(9.0, 3.0, 1.0, 4.0, (3.0, 5.0), 4.5, 0.2, "measured", "separate", "perf")
    run = done(HEAD, SEEN, found, ("unsettled",), "runs/0001.qjoule")
    names = ("j_per_operation", "j_per_operation_low", "j_per_operation_high")
    assert [run[name] for name in names] == [0.04, 0.03, 0.05]  # type: ignore[literal-required]
    assert run["flags"] == ["unsettled"]
    assert json.loads(json.dumps(run, allow_nan=False)) == run
    none = done(HEAD, replace(SEEN, outcome=outcome(operations=0, wall_s=0)), found, (), "")
    assert (none["j_per_operation"], none["j_per_operation_low"], none["throughput"]) == (None,) * 3


GOOD = json.dumps(asdict(SEEN)).encode()
TRACING = b"qjoule: tracing redis\nqjoule: t: 3 queries\n"


def test_what_is_no_answer_is_none() -> None:
    assert read_answer(GOOD) == SEEN
    assert read_answer(b'{"problem": "no"}') == "no"
    for text in (b"", b"{", b"[]", b"null", b"{}", b'{"outcome": {}}', b'{"outcome": 3}', b"\xff"):
        assert read_answer(text) == ""


@pytest.mark.parametrize(
    ("code", "answer", "words", "kind", "message"),
    [
        (1, b"", b"qjoule: no BTF: get it\n", NotRecorded, "^no BTF: get it$"),
        (-9, b"", b"", NotRecorded, "the recorder ended with SIGKILL"),
        (1, b'{"problem": "gone"}', TRACING, RunFailed, "^gone$"),
        (7, b"", TRACING, RunFailed, r"no answer \(exit code 7\): t: 3 queries"),
        (1, GOOD, TRACING + b"qjoule: t: no room\n", RunFailed, "recording failed.*t: no room"),
    ],
)
def test_a_run_that_is_not_whole_says_why(
    code: int, answer: bytes, words: bytes, kind: type[RunFailed], message: str
) -> None:
    with pytest.raises(kind, match=message):
        _judged(code, answer, words, recorded=True)
