# SPDX-License-Identifier: Apache-2.0
"""The memory in the commands: what is used, what is extended, and what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import attribute_trace
from attribute_trace import MS, energy, query, segment
from memory_cases import USUAL, cell
from qjoule.commands import attribute, top, top_live
from qjoule.commands.taken_along import TakenAlong
from qjoule.engine.remembering import Remembering
from qjoule.errors import QjouleError, UsageError
from qjoule.machine import memory_in_force
from qjoule.machine.identity import Identity, Package
from qjoule.machine.memory import TRACE_FILE, Memory, extend, load
from qjoule.model.coefficients import THETA
from qjoule.model.fit.cells import Cell
from qjoule.model.labels import GroupLabel
from qjoule.trace.meta import EnergyInfo, Meta, Server
from qjoule.trace.reader import Trace

BOX = Identity("box", "a" * 32, "CPU", packages=(Package(0, 2, 2),), kernel="6.1")
WINDOWS = 150
REALTIME_NS = 1_800_000_000 * 10**9


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of this user's memory, on the machine `BOX`."""
    monkeypatch.setattr(memory_in_force, "MACHINE_FILE", tmp_path / "absent" / "memory.bin")
    monkeypatch.setattr(memory_in_force, "this_machine", lambda: BOX)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "qjoule" / "memory.bin"


def trace(
    directory: Path,
    *,
    seed: int = 0,
    factors: tuple[float, float] = (1.3, 0.7),
    alone: int = -1,
    day: float = 0.0,
    version: str = "8.0",
    memory: Memory | None = None,
    **meta: Any,
) -> Path:
    """A trace of two statements, each on a CPU of its own; `alone`: only this one runs.

    The package draws 20 W at rest, 5 W while a CPU is busy, and 10 W per busy CPU, times `factors`
    for the statements. A server's thread and another process run beside them.
    """
    random = np.random.default_rng(seed)
    raw, queries, segments, readings = 0.0, [], [], [energy(0, 0)]
    number = 0
    for window in range(WINDOWS):
        begin = 20.0 * window
        busy = random.uniform(2.0, 18.0, 2) * (random.random(2) < 0.7)
        if alone >= 0:
            busy[1 - alone] = 0.0
        for which in np.flatnonzero(busy).tolist():
            number += 1
            end = begin + float(busy[which])
            name = ("aaaa", "bbbb")[which]
            queries.append(query(begin, end, number, name, "query", {}))
            segments.append(segment(begin, end, which, 1, number))
        others = random.uniform(0.0, 18.0 - busy) * (random.random(2) < 0.5)
        for which in np.flatnonzero(others).tolist():
            first = begin + float(busy[which])
            segments.append(segment(first, first + float(others[which]), which, 2 + which, None))
        awake = (busy + others).max()
        raw += 20 * 20 + 5 * awake + 10 * float(busy @ np.array(factors) + others.sum())  # mJ
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


def run(*words: object) -> Result:
    return CliRunner().invoke(attribute.command, [*map(str, words)])


def attributed(*words: object) -> dict[str, Any]:
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def joules(document: dict[str, Any]) -> dict[str, float]:
    return {row["fingerprint"]: row["energy_j"] for row in document["rows"]}


def with_memory(cells: tuple[Cell, ...] = ()) -> Memory:
    return Memory(BOX, cells)


def test_a_trace_extends_the_memory_of_its_machine_once(tmp_path: Path, state: Path) -> None:
    path = trace(tmp_path / "a.qjoule", memory=with_memory())
    first = attributed(path)
    assert "memory" not in first["model"]  # nothing was known yet
    once = state.read_bytes()
    found = load(state)
    assert found is not None
    assert found.shapes >= 2
    assert found.cells[0].conditions == ("6.1", "", "", "", "rapl measured")
    assert attributed(path) == first  # and again: neither a change nor a second count
    assert state.read_bytes() == once


def test_other_groupings_count_nothing_twice(tmp_path: Path, state: Path) -> None:
    path = trace(tmp_path / "a.qjoule", memory=with_memory())
    for by in ("server", "fingerprint", "database,user", "fingerprint"):
        attributed(path, "--by", by)
    found = load(state)
    assert found is not None
    assert len(found.cells) == 1
    assert found.shapes >= 2


def test_a_trace_is_attributed_with_what_it_took_along(tmp_path: Path, state: Path) -> None:
    for alone in (0, 1):
        attributed(
            trace(
                tmp_path / f"{alone}", alone=alone, seed=alone, day=alone / 24, memory=with_memory()
            )
        )
    along = TakenAlong.of("none", None)
    assert along.memory is not None
    assert len(along.memory.cells) == 2
    path = trace(tmp_path / "mixed", seed=7, day=7.0, memory=along.memory)
    used = attributed(path)
    assert used["model"]["memory"].startswith("2 stretches from 2027-01-15")
    state.unlink()
    assert attributed(path) == used  # the machine's own file no longer matters
    assert attributed(path, "--memory", "none") != used


def test_a_file_is_used_and_extended(tmp_path: Path, state: Path) -> None:
    file = tmp_path / "mine.bin"
    attributed(trace(tmp_path / "a", seed=1), "--memory", file)
    assert len(load(file).cells) == 1  # type: ignore[union-attr]
    found = attributed(trace(tmp_path / "b", seed=2, day=1.0), "--memory", file)
    assert found["model"]["memory"].startswith("1 stretch")
    assert len(load(file).cells) == 2  # type: ignore[union-attr]
    assert not state.exists()


def test_none_neither_uses_nor_extends(tmp_path: Path, state: Path) -> None:
    path = trace(tmp_path / "a", memory=with_memory((cell(1),)))
    found = attributed(path, "--memory", "none")
    assert "memory" not in found["model"]
    assert not state.exists()


@pytest.mark.parametrize(
    "meta",
    [
        {"energy": EnergyInfo("replay", "simulated", "a test")},
        {"energy": EnergyInfo("estimated", "estimated", "a test")},
        {"realtime_offset_ns": None},
    ],
)
def test_what_is_not_measured_is_not_remembered(
    tmp_path: Path, state: Path, meta: dict[str, Any]
) -> None:
    attributed(trace(tmp_path / "a", memory=with_memory(), **meta))
    assert not state.exists()


def test_a_trace_of_another_machine_is_not_remembered(tmp_path: Path, state: Path) -> None:
    elsewhere = replace(BOX, machine="b" * 32)
    attributed(trace(tmp_path / "a", memory=Memory(elsewhere)))
    attributed(trace(tmp_path / "b"))  # without a memory nothing tells where it was recorded
    assert not state.exists()


@pytest.mark.usefixtures("state")
def test_a_memory_of_another_machine_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "theirs.bin"
    extend(file, Memory(replace(BOX, host="db2", machine="b" * 32), (cell(1),)))
    path = trace(tmp_path / "a")
    result = run(path, "--memory", file)
    assert result.exit_code != 0
    assert isinstance(result.exception, QjouleError | SystemExit)
    with pytest.raises(QjouleError, match="another host"):
        memory_in_force.for_trace(Trace(path), str(file))
    (path / TRACE_FILE).write_bytes(file.read_bytes())
    notes = attributed(path)["model"]["notes"]
    assert any("the memory is not used: it is of another host" in note for note in notes)


@pytest.mark.usefixtures("state")
def test_a_damaged_memory_of_a_trace_is_said(tmp_path: Path) -> None:
    path = trace(tmp_path / "a")
    (path / TRACE_FILE).write_bytes(b"qjoule.memory/1\nhello")
    notes = attributed(path)["model"]["notes"]
    assert any("the memory is not used" in note and "is no memory" in note for note in notes)
    (path / TRACE_FILE).write_bytes(b"qjoule.memory/7\n" + bytes(64))
    notes = attributed(path)["model"]["notes"]
    assert any("upgrade qjoule" in note for note in notes)


def test_a_damaged_memory_of_the_machine_hinders_nothing(tmp_path: Path, state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(b"rubbish")
    result = run(trace(tmp_path / "a", memory=with_memory()))
    assert result.exit_code == 0
    assert "the memory is not extended" in result.stderr
    assert state.read_bytes() == b"rubbish"
    memory, notes = memory_in_force.to_record()
    assert memory is not None
    assert not memory.cells
    assert "is no memory" in notes[0]


@pytest.mark.usefixtures("state")
def test_a_directory_is_no_memory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        memory_in_force.for_trace(Trace(trace(tmp_path / "a")), str(tmp_path))


@pytest.mark.usefixtures("state")
def test_a_memory_of_another_energy_source_is_not_used(tmp_path: Path) -> None:
    other = replace(cell(1), conditions=USUAL._replace(energy="hwmon measured"))
    used = attributed(trace(tmp_path / "a", memory=with_memory((other,))))
    assert any("it is of hwmon measured" in note for note in used["model"]["notes"])


def test_powercap_and_perf_read_the_same_counters(tmp_path: Path, state: Path) -> None:
    path = trace(tmp_path / "a", memory=with_memory((cell(1),)))
    meta = replace(Trace(path).meta, energy=EnergyInfo("perf", "measured"))
    found = memory_in_force.for_machine()
    assert found(meta).cells == ()  # this user's file is empty
    extend(state, with_memory((cell(1),)))
    assert len(memory_in_force.for_machine()(meta).cells) == 1


@pytest.mark.usefixtures("state")
def test_a_shape_whose_plan_changed_is_named(tmp_path: Path) -> None:
    for seed in range(3):
        attributed(trace(tmp_path / f"{seed}", seed=seed, day=seed / 24, memory=with_memory()))
    known = TakenAlong.of("none", None).memory
    same = attributed(trace(tmp_path / "same", seed=5, day=1.0, memory=known))
    assert not [note for note in same["model"]["notes"] if "the memory" in note]
    moved = trace(tmp_path / "moved", seed=6, day=1.0, factors=(1.3, 1.3), memory=known)
    notes = attributed(moved)["model"]["notes"]
    assert [note for note in notes if "does not draw what the memory says" in note] == [
        "select b does not draw what the memory says (1 times)"
    ]


@pytest.mark.usefixtures("state")
def test_a_server_that_was_upgraded_counts_less(tmp_path: Path) -> None:
    attributed(trace(tmp_path / "a", seed=1, alone=0, memory=with_memory()))
    known = TakenAlong.of("none", None).memory
    assert known is not None
    labels = [GroupLabel("queries", (("fingerprint", "aaaa"),), "select a", "shop-db")]
    names, told = ("idle_w.0", "shared_w.0", *THETA), {}
    for version in ("8.0", "8.4"):
        path = trace(tmp_path / version, seed=4, day=1.0, version=version, memory=known)
        found = Trace(path)
        memory = Remembering.of(memory_in_force.for_trace(found), labels, found.meta)
        recalled = memory.recall("package/time", names, np.zeros(1, np.int64))
        assert recalled.known.all()
        told[version] = recalled.evidence.precision[-1, -1]
    assert told["8.4"] < 0.7 * told["8.0"]


def test_a_clock_that_was_set_back_is_said(tmp_path: Path, state: Path) -> None:
    extend(state, with_memory((cell(1, when_s=3.9e9),)))
    memory, notes = memory_in_force.to_record()
    assert memory is not None
    assert any("clock" in note for note in notes)
    used = attributed(trace(tmp_path / "a", memory=memory))
    assert used["model"]["memory"].startswith("1 stretch")


def test_a_trace_takes_along_where_it_was_recorded(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend(state, with_memory((cell(1),)))
    monkeypatch.chdir(tmp_path)
    TakenAlong.of("none", None).packed().write()
    found = load(tmp_path / TRACE_FILE)
    assert found is not None
    assert found.identity == BOX
    assert len(found.cells) == 1
    TakenAlong.of("none", "none").packed().write()


@pytest.mark.usefixtures("state")
def test_the_replay_agrees_with_attribute(tmp_path: Path) -> None:
    for seed in (0, 1):
        attributed(trace(tmp_path / f"{seed}", seed=seed, day=seed / 24, memory=with_memory()))
    path = trace(tmp_path / "c", seed=3, day=1.0, memory=TakenAlong.of("none", None).memory)
    result = CliRunner().invoke(top.command, ["--replay", str(path), "-b", "-d", "60", "--json"])
    assert result.exit_code == 0, result.output
    last = json.loads(result.stdout.strip().splitlines()[-1])["interval"]
    assert joules(last) == joules(attributed(path))


def test_doctor_says_what_is_remembered(state: Path) -> None:
    assert memory_in_force.check(BOX).ok
    extend(state, with_memory((cell(1),)))
    assert "3 shapes" in memory_in_force.check(BOX).detail
    assert memory_in_force.check(replace(BOX, cpu="another")).ok is None
    state.write_bytes(b"rubbish")
    assert "is no memory" in memory_in_force.check(BOX).detail


@pytest.mark.usefixtures("state")
def test_without_a_topology_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Identity:
        raise QjouleError("no topology")

    monkeypatch.setattr(memory_in_force, "this_machine", fails)
    assert memory_in_force.to_record()[0] is None
    assert memory_in_force.for_machine()(Meta()).notes == ("no memory: no topology",)


def test_top_keeps_a_failure_until_the_view_is_gone(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_live, "this_machine", lambda: BOX)
    failures: list[str] = []
    told = top_live._remembering(None, failures)
    simulated = replace(cell(1), conditions=USUAL._replace(energy="replay simulated"))
    told((simulated,))
    assert not state.exists()
    told((cell(1), simulated))
    found = load(state)
    assert found is not None
    assert len(found.cells) == 1
    state.write_bytes(b"rubbish")
    told((cell(2),))
    assert failures
    assert "is no memory" in failures[0]
    file = tmp_path / "mine.bin"
    top_live._remembering(str(file), failures)((simulated,))
    assert len(load(file).cells) == 1  # type: ignore[union-attr]
    top_live._remembering("none", failures)((cell(3),))
