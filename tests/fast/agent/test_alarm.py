# SPDX-License-Identifier: Apache-2.0
"""More than 1 % of requests or CPU time missing is an alarm, on every screen and in every file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from fake_attribution import typical
from qjoule.model.result import Attribution
from qjoule.report.page_data import about
from qjoule.reporters.alarm import alarm, alarm_of
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.json_report import document
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.table import render
from qjoule.snapshots import Snapshot


@pytest.mark.parametrize(
    ("loss", "counted", "begins"),
    [
        ({"framing": 5, "query": 6}, 989, "1.1 % of requests were lost (11, 989 seen)"),
        (
            *({"framing": 9, "query": 2}, 989),
            "1.1 % of requests were lost (11, 989 seen, mostly by framing: a client that",
        ),
        ({"opaque_session": 3}, 0, "no request was seen, and 3 sessions are hidden"),
        ({}, 0, ""),
        ({"framing": 1, "query": 9}, 990, ""),
        ({"switch": 1000, "multiplexed": 1000, "text": 10, "prepared": 5}, 10, ""),
    ],
)
def test_lost_requests_are_an_alarm_from_one_percent_on(
    loss: dict[str, int], counted: int, begins: str
) -> None:
    words = alarm_of(loss, counted)
    assert words.startswith(begins) and bool(words) == bool(begins)


def _screen(of: Attribution) -> str:
    state = ViewState()
    state.accept(Snapshot(of, of, 2.0, ended=True))
    return "\n".join(line.plain() for line in compose(state, 60, 24))


OUTPUTS: dict[str, Callable[[Attribution], str]] = {
    "table": lambda of: render(of, width=120),
    "json": lambda of: json.dumps(document(of)),
    "csv": to_csv,
    "top": _screen,
    "report": lambda of: str(about("trace", of)),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_alarm_is_in_every_output(output: str) -> None:
    calm = typical(loss={})
    calls = sum(row.calls for row in calm.rows)
    bad = replace(calm, trace=replace(calm.trace, loss={"framing": calls}))
    assert alarm(bad).startswith("50.0 % of requests were lost")
    assert "50.0 % of requests" in OUTPUTS[output](bad)
    for words in ("of requests were lost", "ALARM"):
        assert words not in OUTPUTS[output](calm)
