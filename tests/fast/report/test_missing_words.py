# SPDX-License-Identifier: Apache-2.0
"""What is missing from an attribution is described in words, and nothing is omitted."""

from __future__ import annotations

import dataclasses

from fake_attribution import typical
from qjoule.contract import Loss
from qjoule.model.arrays import Anomalies
from qjoule.model.energy import Cause
from qjoule.reporters import missing
from qjoule.reporters.table import render
from qjoule.trace.schema import CAUSES


def test_every_cause_of_loss_has_words() -> None:
    causes = {name for name in CAUSES if name} | {one.name.lower() for one in Loss if one.name}
    for cause in causes - {"max"}:
        text = missing.loss(typical(loss={cause: 1234}))
        assert text.startswith("1,234 ")
        assert f"1,234 {cause.replace('_', ' ')} ·" not in text, "the cause's bare name"


def test_a_recording_says_it_in_the_words_of_the_report() -> None:
    counts = {"switch": 59, "query": 1, "text": 0}
    report = typical(loss=counts)
    assert missing.lost(counts, report.trace.lost_cpu_ns) == missing.loss(report)
    assert missing.lost(counts).startswith("59 context switches")
    assert missing.lost({}) == ""


def test_windows_and_anomalies_have_words_and_units() -> None:
    for cause in Cause:
        if cause is not Cause.NONE:
            named = dataclasses.replace(typical(), window_causes={f"dram {cause.name.lower()}": 3})
            assert missing.windows(named).startswith("of 625: 3 ")
            assert missing.windows(named).endswith("(dram)")
            assert f"3 {cause.name.lower()} (" not in missing.windows(named)
    for name in vars(Anomalies()):
        text = missing.anomalies(dataclasses.replace(typical(), anomalies={name: 5 * 10**9}))
        assert text.startswith("5.00 s " if name.endswith("_ns") else "5.00 G ")
        assert name.replace("_", " ") not in text


def test_times_that_change_nothing_are_left_to_the_json() -> None:
    few = dataclasses.replace(typical(), anomalies={"overlap_ns": 11_000, "outside_ns": 10**8})
    assert missing.anomalies(few) == ""
    unplaced = dataclasses.replace(typical(), anomalies={"lost_unplaced_ns": 1})
    assert missing.anomalies(unplaced).startswith("1.00 ns")


def test_nothing_missing_is_one_word_and_no_line_more() -> None:
    assert missing.loss(typical()) == "none"
    assert missing.windows(typical()) == missing.anomalies(typical()) == ""
    text = render(typical(), width=120)
    assert "\nwindows" not in text
    assert "\noddities" not in text


def test_the_table_shows_all_of_it() -> None:
    whole = dataclasses.replace(
        typical(loss={"switch": 2}), window_causes={"reset": 1}, anomalies={"late": 4, "new": 1}
    )
    flat = " ".join(render(whole, width=120).split())
    assert "loss 2 context switches not shown by the kernel · 1.50 ms of CPU time" in flat
    assert "windows of 625: 1 in which the counter was reset" in flat
    assert "oddities 4 segments came after their window was closed · 1 new" in flat
