# SPDX-License-Identifier: Apache-2.0
"""Other kernels than this machine's: those of Debian's supported releases and its newest.

Every program of every server loads and attaches, and counts are exact, on every attach mode that
the kernel has.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from nightly.vm.support.machine import Run
from nightly.vm.support.mariadb import GETS, OVER_TCP, STATEMENTS
from nightly.vm.support.plans import Plan, plans
from nightly.vm.support.streams import recorded
from qjoule.contract import Loss
from qjoule.live.source import StreamSource
from qjoule.machine.kernel import read_kernel_facts
from qjoule.servers.shapes import fingerprint
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.context import StreamContext
from qjoule.trace.meta import Meta, Server
from tracing.recording import Run as Queries

pytestmark = pytest.mark.timeout(1800)

#: What a kernel may do: see docs/tracing.md, "Known limits".
HIDDEN = {Loss.SWITCH}


def _of(kernel_vm: Run, name: str, attach_mode: str, directory: Path) -> Queries:
    recorded(kernel_vm, name).trace(directory / "trace")
    queries = Queries(directory / "trace")
    assert not queries.loss
    assert set(queries.queries["attach_mode"]) == {attach_mode}
    for marker, _, times in STATEMENTS:
        assert int(queries.having(marker)["executions"].sum()) == times
    return queries


def test_counts_are_exact_by_symbols(kernel_vm: Run, tmp_path: Path) -> None:
    queries = _of(kernel_vm, "recorded", "symbol", tmp_path)
    selects = int(kernel_vm.text("selects").split()[-1])
    assert int(queries.having("select")["executions"].sum()) == selects


def test_counts_are_exact_by_sockets_where_the_kernel_shows_reads(
    kernel_vm: Run, tmp_path: Path
) -> None:
    if kernel_vm.text("release").startswith("5.10."):
        return
    queries = _of(kernel_vm, "socket", "socket", tmp_path / "socket")
    for marker, _, times in OVER_TCP:
        assert int(queries.having(marker)["executions"].sum()) == times
    _of(kernel_vm, "ended", "symbol", tmp_path / "ended")
    recorded(kernel_vm, "redis").trace(tmp_path / "redis")  # its commands end with its writes
    queries = Queries(tmp_path / "redis")
    assert not queries.loss
    assert int(queries.having("GET")["executions"].sum()) == GETS


def test_top_shows_every_call(kernel_vm: Run) -> None:
    live = recorded(kernel_vm, "live")
    assert set(live.loss) <= HIDDEN
    meta = Meta(host="vm", servers=(Server(1, "mariadb", attach_mode="symbol"),))
    source = StreamSource(Stream(io.BytesIO(live.data)), StreamContext(fingerprint, meta))
    *_, last = source.snapshots(Controls(0.5))
    for marker, _, times in STATEMENTS:
        (row,) = (row for row in last.total.rows if marker in row.shape)
        assert row.calls == times
        assert row.cpu_ns > 0


@pytest.mark.parametrize("plan", plans(reads=True), ids=lambda plan: plan.name)
def test_it_loads_and_attaches(loads_vm: Run, plan: Plan) -> None:
    release = loads_vm.text("release")
    early = release.startswith("5.10.")
    if plan not in plans(reads=not early, early=early):
        pytest.skip("this kernel is without this attach mode")
    assert (loads_vm.out / f"{plan.name}.end").exists(), loads_vm.text(f"{plan.name}.err")[-4000:]


def test_what_the_kernel_shows_is_known_beforehand(loads_vm: Run) -> None:
    early = loads_vm.text("release").startswith("5.10.")
    facts = read_kernel_facts(loads_vm.out / "facts")
    assert (facts.reads, facts.sends, facts.early) == (not early, not early, early)
