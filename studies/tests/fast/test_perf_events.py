# SPDX-License-Identifier: Apache-2.0
"""Events by perf's names, with their numbers for perf_event_open(2)."""

from __future__ import annotations

import errno

import pytest
from click.testing import CliRunner

from qjoule.commands.record import command
from qjoule.contract import MORE_COUNTERS
from qjoule.errors import UsageError
from qjoule.machine.perf_events import PerfEvent, more_counters, parse_event, parse_events


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("branch-instructions", PerfEvent("branches", 0, 4)),
        ("stalled-cycles-backend", PerfEvent("stalled-cycles-backend", 0, 8)),
        ("L1-dcache-load-misses", PerfEvent("L1-dcache-load-misses", 3, 0x10000)),
        ("r01c2", PerfEvent("r01c2", 4, 0x1C2)),
        ("L2-misses=r3f24", PerfEvent("L2-misses", 4, 0x3F24)),
        ("instructions:u", PerfEvent("instructions:u", 0, 1, 4)),
        ("cpu-cycles:k", PerfEvent("cycles:k", 0, 0, 8)),
    ],
)
def test_names(text: str, event: PerfEvent) -> None:
    assert parse_event(text) == event


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("branch-mises", "no event 'branch-mises'; did you mean branch-misses"),
        ("cycles=r1", "cycles is always counted; give it another name"),
        ("branch-misses,,r1", "give events with commas between them"),
        (",".join(f"r{i}" for i in range(MORE_COUNTERS + 1)), "13 events, at most 12 can be read"),
    ],
)
def test_what_is_no_event_is_a_usage_error_that_helps(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(command, ["--counters", text], catch_exceptions=False)
    assert words in str(error.value)


def test_events_become_the_tracers_options_except_what_is_counted_anyway() -> None:
    found = parse_events("cycles, instructions,cache-misses,branch-misses,cpu-cycles,branch-misses")
    assert [event.name for event in found] == ["branch-misses"]
    options = [event.option for event in parse_events("r10,instructions:u,cycles:k")]
    assert options == ["more=4:16", "more=0:1:u", "more=0:0:k"]


def test_what_the_machine_lacks_is_named_and_the_rest_goes_on() -> None:
    errors = {5: errno.ENOENT, 7: errno.EOPNOTSUPP, 8: errno.ENODEV}
    asked = parse_events("branch-misses,branches,stalled-cycles-frontend,stalled-cycles-backend")
    found = more_counters(asked, lambda _type, config, _flags: errors.get(config, 0))
    assert [event.name for event in found.events] == ["branches"]
    assert list(found.missing()) == [
        "not counted: branch-misses, stalled-cycles-frontend (absent)",
        "not counted: stalled-cycles-backend (No such device)",
    ]
