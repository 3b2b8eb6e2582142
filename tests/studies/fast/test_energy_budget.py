# SPDX-License-Identifier: Apache-2.0
"""The marker `energy_budget` with made-up recordings; tests/studies/nightly has a real one."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from qjoule.testing import energy_recording
from qjoule.testing.energy_budget import TAG, judge

pytest_plugins = "pytester"

PLUGIN = "qjoule.testing.pytest_plugin"
#: Replaces the recorder in the tests' own tests: `FIGURES` is (energy, low, high, calls).
FAKE = """
    import hashlib, os
    import pytest
    from qjoule.testing import energy_recording as real

    FIGURES, OTHERS, GRADE = {figures!r}, {others!r}, {grade!r}

    class Fake:
        def __init__(self, *options):
            if {impossible!r}:
                raise real.Impossible({impossible!r})
            print("recorded with", *options)
        def __enter__(self):
            return self
        def __exit__(self, *_):
            pass
        def document(self, by):
            assert by == "tag:energy_test"
            node = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
            value = hashlib.sha256(node.encode()).hexdigest()[:16]
            def row(tag, energy, low, high, calls):
                return {{by: tag, "calls": calls, "energy_j": energy, "energy_j_ci95": [low, high]}}
            rows = [row("(none)", *OTHERS)] if OTHERS else []
            if FIGURES:
                rows.append(row(value, *FIGURES))
            return {{
                "rows": rows,
                "trace": {{"loss": {{"query": 3}}}},
                "energy_source": {{"grade": GRADE}},
                "policy": {{"idle": "separate"}},
            }}

    real.EnergyRecording = Fake
"""
ONE = """
    import pytest

    @pytest.mark.energy_budget({arguments})
    def test_one():
        {body}
"""


def outcome(
    pytester: pytest.Pytester,
    *options: str,
    figures: tuple[float, float, float, int] | None = None,
    others: tuple[float, float, float, int] | None = None,
    grade: str = "measured",
    impossible: str = "",
    arguments: str = "j_per_call=0.005",
    body: str = "pass",
) -> pytest.RunResult:
    fake = FAKE.format(figures=figures, others=others, grade=grade, impossible=impossible)
    pytester.makeconftest(fake)
    pytester.makepyfile(ONE.format(arguments=arguments, body=body))
    original = energy_recording.EnergyRecording
    try:
        return pytester.runpytest_inprocess("-rA", "--strict-markers", *loaded(), *options)
    finally:
        energy_recording.EnergyRecording = original  # type: ignore[misc]


def loaded() -> list[str]:
    """Options that load the plugin if its distribution does not do so by itself."""
    known = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    return [] if known else ["-p", PLUGIN]


def test_a_budget_that_is_kept(pytester: pytest.Pytester) -> None:
    report = pytester.path / "junit.xml"
    result = outcome(
        pytester, f"--junit-xml={report}", figures=(0.4, 0.3, 0.45, 100), others=(9.0, 8.0, 10.0, 7)
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["kept: 0.004 J/call (0.003 to 0.0045 at 95 %) over 100 calls (by tag, 7 calls of others "
         "not counted), budget 0.005 J/call; energy measured, idle separate; lost: query 3"]
    )  # fmt: skip
    assert 'name="qjoule.j_per_call" value="0.004"' in report.read_text()


def test_a_budget_that_is_exceeded_fails(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, figures=(0.8, 0.6, 0.9, 100))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*energy budget exceeded: 0.008 J/call (0.006 to 0.009*"])


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_not_separable_warns_or_fails(pytester: pytest.Pytester, strict: bool) -> None:
    options = ["--energy-strict"] if strict else []
    result = outcome(pytester, *options, figures=(0.8, 0.4, 0.9, 100))
    result.assert_outcomes(failed=strict, passed=not strict, warnings=not strict)
    result.stdout.fnmatch_lines(["*energy budget not separable: 0.008 J/call*"])


def test_calls_without_tags_count_by_time_and_it_says_so(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, others=(0.8, 0.6, 0.9, 100))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*by time span: also what others called meanwhile*"])


def test_no_call_at_all_is_not_kept(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, "--energy-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no call of it was seen*"])


def test_where_nothing_can_be_recorded_it_is_skipped(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, impossible="recording needs root: run pytest with sudo")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no energy budget: recording needs root*"])
    outcome(pytester, figures=(1, 1, 1, 1), grade="none").assert_outcomes(skipped=1)


def test_a_test_that_fails_by_itself_fails_for_that(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, figures=(0.8, 0.6, 0.9, 100), body="assert 'its own' == 'fault'")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*'its own' == 'fault'*"])
    result.stdout.no_fnmatch_line("*energy budget exceeded*")


@pytest.mark.parametrize("arguments", ["", "0", "'1'", "float('nan')", "1, 2", "1, pid='a'"])
def test_a_marker_that_says_nothing_fails(pytester: pytest.Pytester, arguments: str) -> None:
    result = outcome(pytester, figures=(1, 1, 1, 1), arguments=arguments)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*energy_budget needs j_per_call=JOULES*"])


def test_options_reach_the_recorder(pytester: pytest.Pytester) -> None:
    options = ("-s", "--energy-source", "estimated:1,2,3,4")
    result = outcome(pytester, *options, figures=(1, 1, 1, 1), arguments="9.0, pid=42")
    result.stdout.fnmatch_lines(["*recorded with --energy estimated:1,2,3,4 --pid 42*"])


def test_without_the_marker_nothing_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_one():
            heavy = {"numpy", "pyarrow", "pandas", "scipy", "click", "qjoule_drivers",
                     "qjoule.testing.energy_recording", "qjoule.testing.energy_budget"}
            assert not heavy & set(sys.modules)
    """)
    off = ["-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(*loaded(), *off)
    result.assert_outcomes(passed=1)


def test_a_recorder_that_fails_is_a_reason_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "qjoule"
    program.write_text("#!/bin/sh\necho 'qjoule: no BPF here' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(energy_recording, "_program", lambda: str(program))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(energy_recording.Impossible, match="no BPF here"):
        energy_recording.EnergyRecording()
    assert list(tmp_path.iterdir()) == [program]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(energy_recording.Impossible, match="needs root"):
        energy_recording.EnergyRecording()


def test_unknown_energy_is_not_kept() -> None:
    rows: list[dict[str, Any]] = [
        {f"tag:{TAG}": "x", "calls": 3, "energy_j": None, "energy_j_ci95": None}
    ]
    document = {
        "rows": rows,
        "trace": {"loss": {}},
        "energy_source": {"grade": "measured"},
        "policy": {"idle": "separate"},
    }
    verdict = judge(document, "x", 1.0)
    assert (verdict.status, verdict.figures["j_per_call"]) == ("not separable", None)
