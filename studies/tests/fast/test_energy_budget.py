# SPDX-License-Identifier: Apache-2.0
"""The marker `energy_budget` with made-up recordings; studies/tests/nightly has a real one."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import pytest

from qjoule.testing import energy
from qjoule.testing.energy import TAG, judge

pytest_plugins = "pytester"

PLUGIN = "qjoule.testing.pytest_plugin"
#: Energy, both ends of its interval, and calls.
Row = tuple[float | None, float, float, int]
#: Replaces the recorder in the tests' own tests.
FAKE = """
    import hashlib, os
    from qjoule.testing import energy as real

    class Fake:
        def __init__(self, *options):
            print("recorded with", *options)
        def __enter__(self):
            return self
        def __exit__(self, *_):
            pass
        def document(self, by):
            assert by == "tag:energy_test"
            node = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
            value = hashlib.sha256(node.encode()).hexdigest()[:16]
            return {{**{document!r}, "rows": [
                {{**row, by: value if row[by] == "own" else row[by]}}
                for row in {document!r}["rows"]
            ]}}

    real.EnergyRecording = Fake
"""
ONE = """
    import pytest

    @pytest.mark.energy_budget({arguments})
    def test_one():
        pass
"""
KEPT: Row = (0.4, 0.3, 0.45, 100)
EXCEEDED: Row = (0.8, 0.6, 0.9, 100)
UNCLEAR: Row = (0.8, 0.4, 0.9, 100)
OTHERS: Row = (9.0, 8.0, 10.0, 7)


def document(own: Row | None, others: Row | None = None) -> dict[str, Any]:
    rows = [
        {f"tag:{TAG}": tag, "calls": row[3], "energy_j": row[0], "energy_j_ci95": row[1:3]}
        for tag, row in (("own", own), ("(none)", others))
        if row
    ]
    return {
        "rows": rows,
        "trace": {"loss": {"query": 3}},
        "energy_source": {"grade": "measured"},
        "policy": {"idle": "separate"},
    }


@pytest.mark.parametrize(
    ("own", "others", "status", "message"),
    [
        (
            KEPT,
            OTHERS,
            "kept",
            "0.004 J/call (0.003 to 0.0045 at 95 %) over 100 calls (by tag, 7 calls of others "
            "not counted), budget 0.005 J/call; energy measured, idle separate; lost: query 3",
        ),
        (EXCEEDED, None, "exceeded", "0.008 J/call (0.006 to 0.009 at 95 %)"),
        (UNCLEAR, None, "not separable", "0.008 J/call"),
        (None, EXCEEDED, "exceeded", "by time span: also what others called meanwhile"),
        (None, None, "not separable", "no call of it was seen"),
        ((None, 0, 0, 3), None, "not separable", "its joules are unknown"),
    ],
)
def test_the_interval_decides(
    own: Row | None, others: Row | None, status: str, message: str
) -> None:
    verdict = judge(document(own, others), "own", 0.005)
    assert verdict.status == status
    assert message in verdict.words


def outcome(
    pytester: pytest.Pytester,
    *options: str,
    own: Row = KEPT,
    arguments: str = "j_per_call=0.005",
) -> pytest.RunResult:
    recorded = document(own)
    pytester.makeconftest(FAKE.format(document=recorded))
    pytester.makepyfile(ONE.format(arguments=arguments))
    original = energy.EnergyRecording
    try:
        return pytester.runpytest_inprocess("-rA", "--strict-markers", *loaded(), *options)
    finally:
        energy.EnergyRecording = original  # type: ignore[misc]


def loaded() -> list[str]:
    """Options that load the plugin if its distribution does not do so by itself."""
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    return [] if installed else ["-p", PLUGIN]


def test_a_budget_that_is_kept_is_reported(pytester: pytest.Pytester) -> None:
    report = pytester.path / "junit.xml"
    options = ("-s", f"--junit-xml={report}", "--energy-source", "estimated:1,2,3,4")
    result = outcome(pytester, *options, arguments="0.005, pid=42")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*recorded with --energy estimated:1,2,3,4 --pid 42*"])
    assert 'name="qjoule.j_per_call" value="0.004"' in report.read_text()


def test_a_budget_that_is_exceeded_fails(pytester: pytest.Pytester) -> None:
    result = outcome(pytester, own=EXCEEDED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*energy budget exceeded: 0.008 J/call (0.006 to 0.009*"])


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_not_separable_warns_or_fails(pytester: pytest.Pytester, strict: bool) -> None:
    options = ["--energy-strict"] if strict else []
    result = outcome(pytester, *options, own=UNCLEAR)
    result.assert_outcomes(failed=strict, passed=not strict, warnings=not strict)
    result.stdout.fnmatch_lines(["*energy budget not separable: 0.008 J/call*"])


def test_without_the_marker_nothing_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_one():
            heavy = {"numpy", "pyarrow", "pandas", "scipy", "click", "qjoule_drivers",
                     "qjoule.testing.energy"}
            assert not heavy & set(sys.modules)
    """)
    off = ["-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
    pytester.runpytest_subprocess(*loaded(), *off).assert_outcomes(passed=1)
