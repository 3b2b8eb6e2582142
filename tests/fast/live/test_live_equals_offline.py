# SPDX-License-Identifier: Apache-2.0
"""Law 5: the live view, a replay and the attribution of a trace give the same rows."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fake_tracer
from qjoule.engine.attribute import attribute
from qjoule.live.options import LiveOptions
from qjoule.live.replay import LossSums, ReplaySource
from qjoule.live.sources import StreamSource
from qjoule.model.coefficients import THETA, Coefficients, PowerInterval
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.result import Attribution, Row
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.record import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter
from two_packages import IDLE_W, LAG_NS, SERVER, SHARED_W, SMT, TwoPackages
from two_packages_idle import FREE, Costs

META = Meta(servers=(Server(SERVER, "shop-db", "mysql", attach_mode="symbol"),))
PACKAGES = [(package, "package") for package in (0, 1)]
#: Tails of packages and cores, in W for each of `LENGTHS_NS`, and 20 and 4 uJ per wake-up ...
LINGERS = Costs(
    package_w=(0.0, 2.0, 0.0, 1.0, 0.5, 0.0, 0.3, 0.0, 0.2, 0.1),
    core_w=(0.4, 0.0, 0.8, 0.0, 0.1),
    package_wake_nj=20e3,
    core_wake_nj=4e3,
)
#: ... and nJ per miss of the busy cores' mean, up to 20 and 80 per us.
TRAFFIC = replace(LINGERS, traffic_nj=(0.0, 80.0, 20.0))
Key = tuple[str, tuple[tuple[str, str], ...]]


def calibrated(shared_w: float, costs: Costs = FREE) -> Calibrated:
    """A calibration of the machine; weights are to be refined by a regression over windows."""
    certain = np.diag([1e-2] * 6 + [1e-12] * (len(THETA) - 6))
    return Calibrated(
        Coefficients(
            **{"a": 1.5, "b": 0.5, "c": 20.0, "alpha": SMT, "calibrated": True} | costs.terms(),
            idle_w={key: PowerInterval(IDLE_W, IDLE_W - 0.01, IDLE_W + 0.01) for key in PACKAGES},
            shared_w=dict.fromkeys(PACKAGES, shared_w),
            shared_error_w=dict.fromkeys(PACKAGES, 1e-6),
            covariance=tuple(map(tuple, certain.tolist())),
        )
    )


@cache
def stream_of(sums_lag_ns: int = LAG_NS, **machine: Any) -> bytes:
    return TwoPackages(**machine).stream(sums_lag_ns)


def live(
    stream: bytes, calibration: Calibrated = UNCALIBRATED, interval_s: float = 0.5
) -> Attribution:
    """The live view's total at the end of the stream."""
    options = LiveOptions(choose=lambda _meta: calibration)
    source = StreamSource(Stream(io.BytesIO(stream)), fake_tracer.context(META), options)
    return list(source.snapshots(Controls(interval_s)))[-1].total


def offline(stream: bytes, calibration: Calibrated = UNCALIBRATED) -> Attribution:
    """The attribution of the trace that is recorded from the stream."""
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "trace"
        record(Stream(io.BytesIO(stream)), TraceWriter(directory), fake_tracer.context(META))
        return attribute(Trace(directory), calibrated=calibration)


def rows(attribution: Attribution) -> dict[Key, Row]:
    every = (*attribution.rows, *attribution.fixed)
    return {(row.kind, tuple(row.keys.items())): row for row in every}


def agree(live_result: Attribution, recorded: Attribution, rel: float) -> None:
    """Calls, times and totals are equal to the last digit; joules to within `rel`."""
    assert live_result.main.measured_nj == recorded.main.measured_nj > 0
    assert (live_result.windows, live_result.window_causes) == (
        recorded.windows,
        recorded.window_causes,
    )
    assert (live_result.anomalies, live_result.trace.loss) == (
        recorded.anomalies,
        recorded.trace.loss,
    )
    live_rows, recorded_rows = rows(live_result), rows(recorded)
    assert live_rows.keys() == recorded_rows.keys()
    for key, expected in recorded_rows.items():
        row = live_rows[key]
        assert (row.calls, row.cpu_ns) == (expected.calls, expected.cpu_ns), key
        for name in ("latency_ns_mean", "cycles", "instructions", "llc_misses"):
            value, wanted = getattr(row, name), getattr(expected, name)
            assert value == (wanted and pytest.approx(wanted, rel=1e-6)), (key, name)
        assert row.energy_nj == pytest.approx(expected.energy_nj, rel=rel, abs=1e6), key


def most_apart(live_result: Attribution, recorded: Attribution) -> float:
    expected = rows(recorded)
    pairs = [(row.energy_nj, expected[key].energy_nj) for key, row in rows(live_result).items()]
    return max(abs(a / b - 1) for a, b in pairs if b)


def test_law5_would_notice_other_windows_of_sums_and_missing_effects() -> None:
    for lag_ns in (0, 2 * LAG_NS):
        stream = stream_of(shared_w=0.0, sums_lag_ns=lag_ns)
        assert most_apart(live(stream, calibrated(0.0)), offline(stream, calibrated(0.0))) > 1e-3
    stream = stream_of(windows=60, seed=1, bursts=True, costs=LINGERS, shared_w=0.0)
    assert most_apart(live(stream, calibrated(0.0)), live(stream, calibrated(0.0, LINGERS))) > 0.02


def test_law5_with_what_windows_alone_tell() -> None:
    """Live and offline results learn the shared power and the power at rest, within each other's
    intervals."""
    stream = stream_of(windows=500)
    live_result, recorded = live(stream), offline(stream)
    agree(live_result, recorded, 0.02)
    for key, row in rows(live_result).items():
        low, high = rows(recorded)[key].energy_nj_ci95
        assert low <= row.energy_nj <= high, key


def test_law5_with_losses() -> None:
    """Lost time is residual; in the live view in the window that reported the loss."""
    lost = range(100, 130)
    machine = TwoPackages(shared_w=0.0, lost=tuple(lost))
    stream, calibration = machine.stream(), calibrated(0.0)
    lost_ns = sum(machine.stretches[i].t1_ns - machine.stretches[i].t0_ns for i in lost)
    both = []
    for attribution in (live(stream, calibration), offline(stream, calibration)):
        assert attribution.trace.lost_cpu_ns == lost_ns
        assert attribution.trace.loss == {"segment": len(lost)}
        (residual,) = (row for row in attribution.fixed if row.kind == "residual")
        assert residual.cpu_ns == lost_ns
        fixed = tuple(row for row in attribution.fixed if row is not residual)
        both.append((residual.energy_nj, replace(attribution, fixed=fixed)))
    (live_nj, live_result), (recorded_nj, recorded) = both
    assert live_nj == pytest.approx(recorded_nj, rel=0.3)
    agree(live_result, recorded, 0.01)


def test_law5_with_stolen_time() -> None:
    """A host steals half of the one package's busy time. A live stream's sums do not show on which
    CPU of a package an owner ran: here all of one package lose the same."""
    stream = stream_of(windows=150, shared_w=0.0, stolen=(0.5, 0.0))
    live_result, recorded = live(stream, calibrated(0.0)), offline(stream, calibrated(0.0))
    agree(live_result, recorded, 0.01)
    both = [
        sum(row.stolen_ns or 0 for row in rows(each).values()) for each in (live_result, recorded)
    ]
    busy_ns = sum(row.cpu_ns for row in rows(recorded).values() if row.stolen_ns is not None)
    assert both[0] == pytest.approx(both[1], rel=0.01)
    assert 0.2 < both[1] / busy_ns < 0.3
    for key, expected in rows(recorded).items():
        stolen_ns = rows(live_result)[key].stolen_ns
        assert stolen_ns == (expected.stolen_ns and pytest.approx(expected.stolen_ns, rel=0.03))
    assert not live(stream_of(shared_w=0.0), calibrated(0.0)).stolen_recorded


def test_law5_with_dies_and_one_that_is_unplugged() -> None:
    """A die's counter is one of its own; when it can no longer be read, the others go on."""
    one_die = offline(stream_of(shared_w=0.0), calibrated(0.0))
    stream = stream_of(shared_w=0.0, dies=2)
    live_result, recorded = live(stream, calibrated(0.0)), offline(stream, calibrated(0.0))
    agree(live_result, recorded, 0.01)
    assert recorded.main.measured_nj == pytest.approx(one_die.main.measured_nj, rel=1e-6)
    stream = stream_of(shared_w=0.0, dies=2, unplugged=75)
    live_result, recorded = live(stream, calibrated(0.0)), offline(stream, calibrated(0.0))
    agree(live_result, recorded, 0.01)
    assert (recorded.window_causes["missing"], recorded.unattributed_windows) == (25, 25)
    assert recorded.main.measured_nj == pytest.approx(one_die.main.measured_nj * 15 / 16, rel=0.05)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Two seconds of a busy server."""
    path = tmp_path_factory.mktemp("traces") / "small.qjoule"
    stream = Stream(io.BytesIO(b"".join(fake_tracer.traffic(2.0))))
    record(stream, TraceWriter(path), fake_tracer.context(Meta(host="db1")))
    return Trace(path)


@pytest.mark.parametrize("interval_s", [0.02, 0.3, 1e6])
@pytest.mark.parametrize("by", [("fingerprint",), ("server", "session")])
def test_intervals_add_up_to_a_total_that_is_the_attribution(
    trace: Trace, interval_s: float, by: tuple[str, ...]
) -> None:
    source = ReplaySource(trace, speed=0, by=by)
    snapshots = list(source.snapshots(Controls(interval_s, ",".join(by))))
    attributed = attribute(trace, by)
    last = snapshots[-1].total
    assert last.rows == attributed.rows
    assert any(row.waits for row in attributed.rows)
    # The interval's ends are sums of floats, whose last bit depends on the order.
    for part, same in zip(last.fixed, attributed.fixed, strict=True):
        assert part.energy_nj_ci95 == pytest.approx(same.energy_nj_ci95, rel=1e-12)
        assert replace(part, energy_nj_ci95=same.energy_nj_ci95) == same
    assert (last.domains, last.trace) == (attributed.domains, attributed.trace)
    assert [snapshot.ended for snapshot in snapshots] == [False] * (len(snapshots) - 1) + [True]
    assert (
        sum(snapshot.interval.main.measured_nj for snapshot in snapshots) == last.main.measured_nj
    )
    assert sum(snapshot.interval.windows for snapshot in snapshots) == last.windows
    assert sum(snapshot.interval.trace.duration_s for snapshot in snapshots) == pytest.approx(2.0)


def test_loss_of_a_span_is_the_difference_of_running_sums_over_all_cpus() -> None:
    rows = [
        {"t_ns": t_ns, "cpu": cpu, "cause": "segment", "count": count, "lost_ns": 10 * count}
        for t_ns, cpu, count in ((1, 0, 2), (2, 1, 3), (5, 0, 9))
    ]
    loss = LossSums(pa.Table.from_pylist(rows))
    assert loss.between(0, 9) == ({"segment": 12}, 120)
    assert loss.between(2, 9) == ({"segment": 7}, 70)
    assert loss.between(5, 9) == ({}, 0)


@cache
def streamed(shared_w: float, bursts: bool, costs: Costs) -> tuple[bytes, Attribution]:
    """A stream, and the attribution of its trace."""
    windows = 60 if bursts else 100
    stream = stream_of(windows=windows, bursts=bursts, costs=costs, shared_w=shared_w)
    return stream, offline(stream, calibrated(shared_w, costs))


@given(
    st.sampled_from([0.0, SHARED_W]),
    st.sampled_from([(False, FREE), (True, LINGERS), (True, TRAFFIC)]),
    st.sampled_from([0.1, 0.5, 100.0]),
)
def test_law5_live_and_recorded_rows_agree(
    shared_w: float, bursts_and_costs: tuple[bool, Costs], interval_s: float
) -> None:
    """To a millionth where the kernel's sums tell all. They do not tell who ran at the same time
    as whom, and whose misses coincided: shared power and traffic agree to two percent.
    """
    _, costs = bursts_and_costs
    stream, recorded = streamed(shared_w, *bursts_and_costs)
    live_result = live(stream, calibrated(shared_w, costs), interval_s)
    kinds = {row.kind for row in rows(live_result).values() if row.cpu_ns}
    assert kinds == {"queries", "background", "other_processes", "kernel", "tracer", "idle"}
    agree(live_result, recorded, 1e-6 if shared_w == 0.0 and costs != TRAFFIC else 0.02)
