# SPDX-License-Identifier: Apache-2.0
"""Law 5: the same tracer stream gives the same rows in the live view and from a trace."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake_tracer
from qjoule.engine.attribute import attribute
from qjoule.live.source import StreamSource
from qjoule.model.coefficients import THETA, Coefficients, PowerInterval
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.result import Attribution, Row
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter
from two_packages import IDLE_W, LAG_NS, SERVER, SHARED_W, SMT, TwoPackages
from two_packages_idle import FREE, Costs

META = Meta(servers=(Server(SERVER, "shop-db", "mysql", rung="symbol"),))
#: Nothing saturates, lingers or follows traffic on this machine, and that is known.
_CERTAIN = np.diag([1e-2] * 6 + [1e-12] * (len(THETA) - 6))
PACKAGES = [(package, "package") for package in (0, 1)]


def with_shared(shared_w: float, costs: Costs = FREE) -> Calibrated:
    """A calibration of the machine; weights are to be refined by a regression over windows."""
    return Calibrated(
        Coefficients(
            a=1.5,
            b=0.5,
            c=20.0,
            alpha=SMT,
            idle_w={key: PowerInterval(IDLE_W, IDLE_W - 0.01, IDLE_W + 0.01) for key in PACKAGES},
            shared_w=dict.fromkeys(PACKAGES, shared_w),
            shared_error_w=dict.fromkeys(PACKAGES, 1e-6),
            covariance=tuple(map(tuple, _CERTAIN.tolist())),
            calibrated=True,
            **costs.terms(),
        )
    )


KNOWN = with_shared(0.0)
#: Tails of packages and cores, in W for each of `TAILS_NS`, and 20 and 4 uJ per wake-up ...
LINGERS = Costs(
    package_w=(0.0, 2.0, 0.0, 1.0, 0.5),
    core_w=(0.4, 0.0, 0.8, 0.0, 0.1),
    package_wake_nj=20e3,
    core_wake_nj=4e3,
)
#: ... and nJ per miss of the busy cores' mean, up to 20 and 80 per us.
EFFECTS = replace(LINGERS, traffic_nj=(0.0, 80.0, 20.0))
Key = tuple[str, tuple[tuple[str, str], ...]]


@cache
def _stream(sums_lag_ns: int = LAG_NS, **changed: Any) -> bytes:
    return TwoPackages(**changed).stream(sums_lag_ns)


def live(
    stream: bytes, calibrated: Calibrated = UNCALIBRATED, interval_s: float = 0.5
) -> Attribution:
    """The live view's total at the end of the stream."""
    fingerprint = fake_tracer.fingerprint
    source = StreamSource(
        Stream(io.BytesIO(stream)),
        fingerprint,
        META,
        choose=lambda _meta: calibrated,
    )
    return list(source.snapshots(Controls(interval_s)))[-1].total


def recorded(
    stream: bytes,
    directory: Path,
    calibrated: Calibrated = UNCALIBRATED,
    by: tuple[str, ...] = ("fingerprint",),
) -> Attribution:
    """The attribution of the trace written from the stream."""
    writer = TraceWriter(directory)
    fingerprint = fake_tracer.fingerprint
    record(Stream(io.BytesIO(stream)), writer, fingerprint, META)
    return attribute(Trace(directory), by, calibrated=calibrated)


def rows(found: Attribution) -> dict[Key, Row]:
    return {(row.kind, tuple(row.keys.items())): row for row in (*found.rows, *found.fixed)}


def _agree(one: Attribution, other: Attribution, rel: float) -> None:
    """Calls, times and totals are equal to the last digit; joules to within `rel`."""
    assert one.main.measured_nj == other.main.measured_nj > 0
    assert (one.windows, one.window_causes) == (other.windows, other.window_causes)
    assert (one.anomalies, one.trace.loss) == (other.anomalies, other.trace.loss)
    live_rows, recorded_rows = rows(one), rows(other)
    assert live_rows.keys() == recorded_rows.keys()
    for key, expected in recorded_rows.items():
        row = live_rows[key]
        assert (row.calls, row.cpu_ns) == (expected.calls, expected.cpu_ns), key
        for name in ("latency_ns_mean", "cycles", "instructions", "llc_misses"):
            found, wanted = getattr(row, name), getattr(expected, name)
            assert (found is None) == (wanted is None), (key, name)
            assert (found or 0.0) == pytest.approx(wanted or 0.0, rel=1e-6), (key, name)
        assert row.energy_nj == pytest.approx(expected.energy_nj, rel=rel, abs=1e6), key


def _without_residual(found: Attribution) -> Attribution:
    return replace(found, fixed=tuple(row for row in found.fixed if row.kind != "residual"))


def _kinds(found: Attribution) -> set[str]:
    return {row.kind for row in (*found.rows, *found.fixed) if row.cpu_ns}


def test_law5_with_known_coefficients_the_rows_agree(tmp_path: Path) -> None:
    """To a millionth. Nothing is shared, so it does not matter who ran at the same time as whom."""
    stream = _stream(shared_w=0.0)
    one, other = live(stream, KNOWN), recorded(stream, tmp_path / "trace", KNOWN)
    assert _kinds(one) == {"queries", "background", "other_processes", "kernel", "tracer", "idle"}
    assert len(one.rows) == 3
    _agree(one, other, 1e-6)


@pytest.mark.parametrize("lag_ns", [0, 2 * LAG_NS])
def test_law5_notices_windows_of_sums_that_end_at_another_moment(
    tmp_path: Path, lag_ns: int
) -> None:
    stream = _stream(shared_w=0.0, sums_lag_ns=lag_ns)
    one, other = live(stream, KNOWN), recorded(stream, tmp_path / "trace", KNOWN)
    joules = [{key: row.energy_nj for key, row in rows(found).items()} for found in (one, other)]
    apart = [abs(joules[0][key] - nj) / nj for key, nj in joules[1].items() if nj]
    assert max(apart) > 1e-3, "a thousand times what is allowed above"


def test_law5_with_tails_and_wake_ups_the_rows_agree(tmp_path: Path) -> None:
    """To a millionth, on a machine of short bursts: the kernel sums them exactly."""
    stream = _stream(windows=60, bursts=True, shared_w=0.0, costs=LINGERS)
    known = with_shared(0.0, LINGERS)
    one, other = live(stream, known), recorded(stream, tmp_path / "trace", known)
    _agree(one, other, 1e-6)
    without = rows(live(stream, KNOWN))
    joules = [(without[key].energy_nj, row.energy_nj) for key, row in rows(one).items()]
    apart = [abs(other_nj / nj - 1) for other_nj, nj in joules if nj]
    assert max(apart) > 0.02, "tails and wake-ups are a part of these rows"


def test_law5_with_shared_power_the_rows_agree_to_two_percent(tmp_path: Path) -> None:
    """The kernel's sums do not record who ran at the same time as whom.

    They record how long a package was awake; shared power is divided by the cores' time.
    """
    stream, known = _stream(), with_shared(SHARED_W)
    _agree(live(stream, known), recorded(stream, tmp_path / "trace", known), 0.02)


def test_law5_with_all_effects_the_rows_agree_to_two_percent(tmp_path: Path) -> None:
    """Traffic is computed from sums: whose misses coincided is not known."""
    stream = _stream(windows=60, bursts=True, costs=EFFECTS)
    known = with_shared(SHARED_W, EFFECTS)
    _agree(live(stream, known), recorded(stream, tmp_path / "trace", known), 0.02)


def test_law5_with_what_windows_alone_tell_the_rows_agree_to_two_percent(tmp_path: Path) -> None:
    """And within each other's intervals: both learn the shared power and the power at rest."""
    stream = _stream(windows=500)
    one, other = live(stream), recorded(stream, tmp_path / "trace")
    _agree(one, other, 0.02)
    for found, judge in ((one, other), (other, one)):
        for key, row in rows(found).items():
            low, high = rows(judge)[key].energy_nj_ci95
            assert low <= row.energy_nj <= high, key


def test_law5_with_losses(tmp_path: Path) -> None:
    """Both count lost time as residual; the live view does so in the window that reported
    the loss.
    """
    lost = tuple(range(100, 130))
    machine = TwoPackages(shared_w=0.0, lost=lost)
    stream = machine.stream()
    one, other = live(stream, KNOWN), recorded(stream, tmp_path / "trace", KNOWN)
    lost_ns = sum(s.t1_ns - s.t0_ns for s in machine.stretches[100:130])
    assert one.trace.lost_cpu_ns == other.trace.lost_cpu_ns == lost_ns
    assert one.trace.loss == {"segment": len(lost)}
    of_residual = [rows(found).pop(("residual", ())) for found in (one, other)]
    assert [row.cpu_ns for row in of_residual] == [lost_ns, lost_ns]
    assert of_residual[0].energy_nj == pytest.approx(of_residual[1].energy_nj, rel=0.3)
    one, other = (_without_residual(found) for found in (one, other))
    _agree(one, other, 0.01)


def test_a_late_reading_makes_intervals_wider_and_no_row_wrong() -> None:
    """The tracer may wake late: its sums ended in time, but the reading for them came later."""
    late = _stream(shared_w=0.0, late_ns=(0, 200_000, 1_000_000, 50_000, 0))
    seen, timely = live(late, KNOWN), live(_stream(shared_w=0.0), KNOWN)
    assert seen.anomalies == {}
    for key, row in rows(timely).items():
        found = rows(seen)[key]
        assert (found.calls, found.cpu_ns) == (row.calls, row.cpu_ns)
        low, high = found.energy_nj_ci95
        assert low <= row.energy_nj <= high, key
        if row.kind == "idle":  # others also depend on power factors, which the windows tell
            assert high - low > row.energy_nj_ci95[1] - row.energy_nj_ci95[0]


def test_law5_however_often_the_view_is_drawn() -> None:
    stream = _stream(shared_w=0.0)
    often, once = live(stream, KNOWN, 0.1), live(stream, KNOWN, 100.0)
    _agree(often, once, 1e-12)


def test_sessions_name_the_database_of_a_trace(tmp_path: Path) -> None:
    found = recorded(_stream(windows=10), tmp_path / "trace", by=("database",))
    assert [row.keys for row in found.rows] == [{"database": "shop"}]
