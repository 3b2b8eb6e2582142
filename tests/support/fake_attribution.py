# SPDX-License-Identifier: Apache-2.0
"""Attributions for tests of the output, made without the model; a snapshot source of them."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace

from rich.cells import cell_len

from qjoule.model.result import (
    OWNERS,
    PARTS,
    Attribution,
    Domain,
    EnergySource,
    ModelInfo,
    Row,
    TraceInfo,
)
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.snapshots import Controls, Snapshot

SHAPES = (
    "SELECT users.location, COUNT(*) FROM users JOIN tweets ON tweets.user_id = users.id "
    "GROUP BY users.location",
    "SELECT user_id, COUNT(*) AS n FROM tweets GROUP BY user_id ORDER BY n DESC LIMIT ?",
    "DELETE FROM tweets WHERE created_at < ?",
    "SELECT * FROM users WHERE id IN (?+)",
    "UPDATE counters SET n = n + ? WHERE id = ?",
)


def query_row(
    energy_nj: int,
    shape: str = "SELECT ?",
    calls: int = 10,
    measured_nj: int = 10**9,
    **other: object,
) -> Row:
    """A group of queries with plausible figures; `other` overrides any field."""
    fields: dict[str, object] = {
        "keys": {"fingerprint": f"{abs(hash(shape)) % 2**64:016x}"},
        "shape": shape,
        "server": "mariadb:3306",
        "kind": "queries",
        "calls": calls,
        "energy_nj": energy_nj,
        "energy_nj_ci95": (energy_nj * 0.97, energy_nj * 1.03),
        "share": energy_nj / measured_nj if measured_nj else 0.0,
        "cpu_ns": energy_nj // 12,
        "latency_ns_mean": energy_nj / 10 / max(calls, 1),
        "latency_ns_p50": energy_nj / 11 / max(calls, 1),
        "latency_ns_p95": energy_nj / 6 / max(calls, 1),
        "latency_ns_p99": energy_nj / 4 / max(calls, 1),
        "attach_mode": "symbol",
    }
    return Row(**{**fields, **other})  # type: ignore[arg-type]


def fixed_row(
    kind: str, energy_nj: int, measured_nj: int, shape: str = "", server: str = ""
) -> Row:
    return Row(
        keys={},
        shape=shape,
        server=server,
        kind=kind,
        calls=0,
        energy_nj=energy_nj,
        energy_nj_ci95=(energy_nj * 0.9, energy_nj * 1.1),
        share=energy_nj / measured_nj if measured_nj else 0.0,
        cpu_ns=energy_nj // 12,
    )


def attribution(
    rows: tuple[Row, ...],
    fixed_nj: dict[str, int],
    *,
    grade: str = "measured",
    loss: dict[str, int] | None = None,
    complete: bool = True,
    duration_s: float = 12.5,
    unattributed_windows: int = 0,
) -> Attribution:
    """Builds an attribution that adds up, from rows and the energies of the other parts."""
    parts = {part: fixed_nj.get(part, 0) for part in PARTS}
    parts["queries"] = sum(row.energy_nj for row in rows)
    measured_nj = sum(parts.values())
    return Attribution(
        trace=TraceInfo(
            host="db1",
            kernel="Linux 6.1.0-18-amd64",
            cpu="Intel(R) Xeon(R) Gold 6130",
            start="2026-11-21T03:31:02.123456Z",
            duration_s=duration_s,
            complete=complete,
            loss=loss or {},
            lost_cpu_ns=1_500_000 if loss else 0,
        ),
        energy_source=EnergySource(
            name="powercap" if grade != "none" else "",
            grade=grade,
            reason="intel-rapl:0 is readable and moves",
            domains=("package", "dram") if grade != "none" else (),
            main_domain="package" if grade != "none" else "",
        ),
        policy={"idle": "separate", "by": "fingerprint"},
        model=ModelInfo("cpu_time", {"a": 1.0}, False, None, ("no hardware counters here",)),
        domains=(Domain("package", measured_nj, parts),) if grade != "none" else (),
        rows=tuple(_with_share(row, parts) for row in rows),
        fixed=tuple(
            _with_share(fixed_row(part, parts[part], measured_nj), parts)
            for part in PARTS[1:]
            if part in fixed_nj
        ),
        coverage=0.982,
        windows=625,
        unattributed_windows=unattributed_windows,
    )


def _with_share(row: Row, parts_nj: dict[str, int]) -> Row:
    """The row with its share of the energy of all owners, to 2 %; idle and residual have none."""
    owned_nj = sum(parts_nj[part] for part in OWNERS)
    if row.kind not in OWNERS or not owned_nj:
        return replace(row, share=None)
    share = row.energy_nj / owned_nj
    return replace(row, share=share, share_ci95=(0.98 * share, min(1.02 * share, 1.0)))


def typical(**other: object) -> Attribution:
    """Five shapes on one server, and every other kind of energy consumer."""
    energies = (41_234_567_890, 23_456_789_012, 9_876_543_210, 4_321_098_765, 54_321)
    calls = (12, 40, 3, 120_000, 1)
    fixed = {
        "background": 12_345_678_901,
        "other_processes": 7_654_321_098,
        "kernel": 3_210_987_654,
        "tracer": 432_109_876,
        "idle": 187_654_321_098,
        "residual": 12_345,
    }
    measured = sum(energies) + sum(fixed.values())
    rows = tuple(
        query_row(energy, shape, number, measured, keys={"fingerprint": f"{index:016x}"})
        for index, (energy, shape, number) in enumerate(zip(energies, SHAPES, calls, strict=True))
    )
    return attribution(rows, fixed, **other)  # type: ignore[arg-type]


class FakeSource:
    """Yields what is put in; blocks while there is nothing."""

    name = "fake"
    groups: tuple[str, ...] = ("fingerprint", "server", "database", "user")

    def __init__(self, *snapshots: Snapshot) -> None:
        self.queue: queue.Queue[Snapshot | Exception | None] = queue.Queue()
        for snapshot in snapshots:
            self.queue.put(snapshot)

    def put(self, item: Snapshot | Exception | None) -> None:
        """A snapshot, an error to raise, or None to end."""
        self.queue.put(item)

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        while not controls.stopped:
            item = self.queue.get()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def close(self) -> None:
        self.queue.put(None)


def snapshot(elapsed_s: float = 12.5, **other: object) -> Snapshot:
    attribution = typical(**other)
    return Snapshot(attribution, attribution, elapsed_s)


def screen(state: ViewState, width: int, height: int) -> list[str]:
    """The lines of the live view, none of which is wider than the screen, or overlaps itself."""
    lines = compose(state, width, height)
    assert len(lines) == height
    for line in lines:
        end = 0
        for span in line.spans:
            assert span.x >= end, "spans do not overlap"
            end = span.x + cell_len(span.text)
        assert end <= width
    return [line.plain() for line in lines]
