# SPDX-License-Identifier: Apache-2.0
"""The machine's memory in commands: which is used, which is extended, and the notes on it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attribute_trace
from attribute_trace import MS, energy, query, segment
from calibrations import cell
from cli_runner import invoke, printed_json
from qjoule.commands import attribute
from qjoule.errors import QjouleError
from qjoule.machine import active_memory
from qjoule.machine.identity import Identity, Package
from qjoule.machine.memory import TRACE_FILE, Memory, extend, load
from qjoule.model.fit.cells import Cell
from qjoule.trace.meta import EnergyInfo, Server
from qjoule.trace.reader import Trace

BOX = Identity("box", "a" * 32, "CPU", packages=(Package(0, 2, 2),), kernel="6.1")
WINDOWS = 150
REALTIME_NS = 1_800_000_000 * 10**9


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of this user's memory, on the machine `BOX`."""
    monkeypatch.setattr(active_memory, "MACHINE_FILE", tmp_path / "absent" / "memory.bin")
    monkeypatch.setattr(active_memory, "this_machine", lambda: BOX)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "qjoule" / "memory.bin"


def trace(
    directory: Path,
    *,
    seed: int = 0,
    alone: int = -1,
    day: float = 0.0,
    version: str = "8.0",
    memory: Memory | None = None,
    **meta: Any,
) -> Path:
    """A trace of two statements, each on a CPU of its own; `alone`: only this one runs.

    The package draws 20 W at rest, 5 W while a CPU is busy, and 10 W per busy CPU, times 1.3 and
    0.7 for the statements.
    """
    random = np.random.default_rng(seed)
    raw, readings = 0.0, [energy(0, 0)]
    queries, segments = list[dict[str, Any]](), list[dict[str, Any]]()
    for window in range(WINDOWS):
        begin = 20.0 * window
        busy = random.uniform(2.0, 18.0, 2) * (random.random(2) < 0.7)
        if alone >= 0:
            busy[1 - alone] = 0.0
        for which in np.flatnonzero(busy).tolist():
            number, end = len(queries) + 1, begin + float(busy[which])
            queries.append(query(begin, end, number, ("aaaa", "bbbb")[which], "query", {}))
            segments.append(segment(begin, end, which, 1, number))
        raw += 20 * 20 + 5 * busy.max() + 10 * float(busy @ np.array([1.3, 0.7]))  # mJ
        readings.append(energy(begin + 20, round(raw * 1e6)))
    fields = {
        "end_ns": attribute_trace.BEGIN_NS + 20 * WINDOWS * MS,
        "realtime_offset_ns": REALTIME_NS + round(day * 86_400e9),
        "energy": EnergyInfo("powercap", "measured", "a test"),
        "servers": (Server(1, "shop-db", "mysql", version),),
    }
    attribute_trace.write(
        directory, queries=queries, segments=segments, energy=readings, meta=fields | meta
    )
    if memory is not None:
        (directory / TRACE_FILE).write_bytes(memory.to_bytes())
    return directory


run = partial(invoke, attribute.command)
attributed = partial(printed_json, attribute.command, "--format", "json")


def known(path: Path) -> Memory:
    """The memory in a file, which must be there."""
    memory = load(path)
    assert memory is not None
    return memory


def notes_of(path: Path) -> str:
    return "\n".join(attributed(path)["model"]["notes"])


def with_memory(cells: tuple[Cell, ...] = ()) -> Memory:
    return Memory(BOX, cells)


def test_a_trace_extends_the_memory_of_its_machine_once(tmp_path: Path, state: Path) -> None:
    path = trace(tmp_path / "a.qjoule", memory=with_memory())
    first = attributed(path)
    assert "memory" not in first["model"]  # nothing was known yet
    (cell_of_it,) = known(state).cells
    assert known(state).shapes >= 2
    assert cell_of_it.conditions == ("6.1", "", "", "", "rapl measured")
    assert attributed(path) == first  # and again: neither a change nor a second count
    attributed(path, "--by", "server")
    assert len(known(state).cells) == 1


def test_a_trace_is_attributed_with_what_it_took_along(tmp_path: Path, state: Path) -> None:
    for alone in (0, 1):
        day, path = alone / 24, tmp_path / f"{alone}"
        attributed(trace(path, alone=alone, seed=alone, day=day, memory=with_memory()))
    memory, _ = active_memory.to_record(None)
    assert memory is not None
    assert len(memory.cells) == 2
    path = trace(tmp_path / "mixed", seed=7, day=7.0, memory=memory)
    used = attributed(path)
    assert used["model"]["memory"].startswith("2 stretches from 2027-01-15")
    state.unlink()
    plain = attributed(path, "--memory", "none")
    assert "memory" not in plain["model"]
    assert not state.exists()
    assert attributed(path) == used  # the machine's own file no longer matters


def test_a_file_is_used_and_extended(tmp_path: Path, state: Path) -> None:
    file = tmp_path / "mine.bin"
    attributed(trace(tmp_path / "a", seed=1), "--memory", file)
    assert len(known(file).cells) == 1
    printed = attributed(trace(tmp_path / "b", seed=2, day=1.0), "--memory", file)
    assert printed["model"]["memory"].startswith("1 stretch")
    assert len(known(file).cells) == 2
    assert not state.exists()


@pytest.mark.parametrize(
    ("memory", "meta"),
    [
        (Memory(BOX), {"energy": EnergyInfo("replay", "simulated", "a test")}),
        (Memory(replace(BOX, machine="b" * 32)), {}),
        (None, {}),  # nothing tells where it was recorded
    ],
)
def test_what_is_not_measured_on_this_machine_is_not_remembered(
    tmp_path: Path, state: Path, memory: Memory | None, meta: dict[str, Any]
) -> None:
    attributed(trace(tmp_path / "a", memory=memory, **meta))
    assert not state.exists()


@pytest.mark.usefixtures("state")
def test_a_memory_of_another_machine_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "theirs.bin"
    extend(file, Memory(replace(BOX, host="db2", machine="b" * 32), (cell(1),)))
    path = trace(tmp_path / "a")
    assert run(path, "--memory", file).exit_code != 0
    with pytest.raises(QjouleError, match="another host"):
        active_memory.for_trace(Trace(path), str(file))
    (path / TRACE_FILE).write_bytes(file.read_bytes())
    assert "the memory is not used: it is of another host" in notes_of(path)


def test_a_damaged_memory_of_the_machine_hinders_nothing(tmp_path: Path, state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(b"rubbish")
    result = run(trace(tmp_path / "a", memory=with_memory()))
    assert result.exit_code == 0
    assert "the memory is not extended" in result.stderr
    assert state.read_bytes() == b"rubbish"
    memory, notes = active_memory.to_record()
    assert memory is not None and not memory.cells
    assert "is no memory" in notes[0]


def test_doctor_says_what_is_remembered(state: Path) -> None:
    assert active_memory.check(BOX).ok
    extend(state, with_memory((cell(1),)))
    assert "3 shapes" in active_memory.check(BOX).detail
    assert active_memory.check(replace(BOX, cpu="another")).ok is None
    state.write_bytes(b"rubbish")
    assert "is no memory" in active_memory.check(BOX).detail
