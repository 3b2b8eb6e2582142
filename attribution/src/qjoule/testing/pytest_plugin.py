# SPDX-License-Identifier: Apache-2.0
"""The pytest marker `energy_budget`: limits the joules of each query of a test.

    @pytest.mark.energy_budget(j_per_call=0.005)
    def test_the_cart_is_one_query(shop): ...

The test is recorded while it runs, which needs root and BPF. A tag from the shims of
`qjoule-drivers` separates its calls from others. The test fails if the lower end of the 95 %
interval of its joules per call exceeds the budget. If the budget lies within the interval, the
result is not separable: a warning, or with `--energy-strict` a failure. If nothing can be recorded,
the test is skipped.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

MARKER = "energy_budget"
_USAGE = "energy_budget needs j_per_call=JOULES, a positive number, and takes pid=PID besides"


class EnergyBudgetWarning(pytest.PytestWarning):
    """A test's joules per call are not separable from its budget."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--energy-strict` and `--energy-source`."""
    group = parser.getgroup("qjoule", "joules per query")
    group.addoption(
        "--energy-strict",
        action="store_true",
        help="energy budgets that are not separable fail, instead of a warning",
    )
    group.addoption(
        "--energy-source",
        default="auto",
        metavar="SOURCE",
        help="where energy comes from, as of `qjoule record --energy` [%(default)s]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(j_per_call, pid=None): record this test's database calls (as root), and fail if "
        "one costs surely more joules; pid: of the server, default all",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Records the test if it is marked."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return (yield)
    budget_j, options = _arguments(marker)
    from qjoule.testing.energy import TAG, CannotRecord, EnergyRecording, judge  # noqa: PLC0415 (only where it is used)  # noqa: PLC0415

    value = hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]
    try:
        recording = EnergyRecording(
            "--energy", str(item.config.getoption("--energy-source")), *options
        )
    except CannotRecord as reason:
        pytest.skip(f"no energy budget: {reason}")
    with recording:
        with _tag_calls(TAG, value):
            result = yield
        try:
            document = recording.document(f"tag:{TAG}")
        except CannotRecord as reason:
            _say(item, "not separable", str(reason))
            return result
    if document["energy_source"]["grade"] == "none":
        pytest.skip("no energy budget: no energy source here; see `qjoule doctor`")
    verdict = judge(document, value, budget_j)
    for name, figure in verdict.figures.items():
        item.user_properties.append((f"qjoule.{name}", figure))
    _say(item, verdict.status, verdict.words)
    return result


def _arguments(marker: pytest.Mark) -> tuple[float, list[str]]:
    """Returns the budget in J per call, and the options for `qjoule record`."""
    arguments = {**dict(zip(("j_per_call",), marker.args, strict=False)), **marker.kwargs}
    budget, pid = arguments.pop("j_per_call", None), arguments.pop("pid", None)
    fine = isinstance(budget, (int, float)) and math.isfinite(budget) and budget > 0
    if arguments or not fine or len(marker.args) > 1 or not isinstance(pid, (int, type(None))):
        pytest.fail(_USAGE, pytrace=False)
    return float(budget), [] if pid is None else ["--pid", str(pid)]


def _say(item: pytest.Item, status: str, words: str) -> None:
    item.add_report_section("call", "energy", f"{status}: {words}")
    if status == "exceeded":
        pytest.fail(f"energy budget exceeded: {words}", pytrace=False)
    if status == "not separable":
        message = f"energy budget not separable: {words}"
        if item.config.getoption("--energy-strict"):
            pytest.fail(message, pytrace=False)
        item.warn(EnergyBudgetWarning(message))


@contextmanager
def _tag_calls(key: str, value: str) -> Iterator[None]:
    """Tags the calls that this process makes in the block, if qjoule-drivers is installed.

    Drivers that were not wrapped before are unwrapped at the end.
    """
    try:
        import qjoule_drivers  # noqa: PLC0415
        from qjoule_drivers.channel import channel  # noqa: PLC0415
    except ImportError:
        yield
        return
    # A program that wraps drivers itself keeps its own settings and wrappers.
    wrapped_before = any(state.startswith("wrapped") for state in qjoule_drivers.state().values())
    if not wrapped_before:
        qjoule_drivers.instrument()
    channel.close()  # a recorder has started: the next call looks for it
    tags: dict[str, Any] = {key: value}
    try:
        with qjoule_drivers.tag(**tags):
            yield
    finally:
        if not wrapped_before:
            qjoule_drivers.uninstrument()
