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
    alone: int = -1,
    day: float = 0.0,
    version: str = "8.0",
    memory: Memory | None = None,
    **meta: Any,
) -> Path:
    """A trace of two statements, each on a CPU of its own; `alone`: only this one runs.

    The package draws 20 W at rest, 5 W while a CPU is busy, and 10 W per busy CPU, times 1.3 and
    0.7 for the statements. A server's thread and another process run beside them.
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
        others = random.uniform(0.0, 18.0 - busy) * (random.random(2) < 0.5)
        for which in np.flatnonzero(others).tolist():
            first = begin + float(busy[which])
            segments.append(segment(first, first + float(others[which]), which, 2 + which, None))
        awake = (busy + others).max()
        raw += 20 * 20 + 5 * awake + 10 * float(busy @ np.array([1.3, 0.7]) + others.sum())  # mJ
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


def known(path: Path) -> Memory:
    """The memory in a file, which must be there."""
    found = load(path)
    assert found is not None
    return found


def notes_of(path: Path) -> str:
    return "\n".join(attributed(path)["model"]["notes"])


def joules(document: dict[str, Any]) -> dict[str, float]:
    return {row["fingerprint"]: row["energy_j"] for row in document["rows"]}


def with_memory(cells: tuple[Cell, ...] = ()) -> Memory:
    return Memory(BOX, cells)


def test_a_trace_extends_the_memory_of_its_machine_once(tmp_path: Path, state: Path) -> None:
    path = trace(tmp_path / "a.qjoule", memory=with_memory())
    first = attributed(path)
    assert "memory" not in first["model"]  # nothing was known yet
    (cell_of_it,) = known(state).cells
    assert known(state).shapes >= 2
    assert cell_of_it.conditions == ("6.1", "", "", "", "rapl measured")
    once = state.read_bytes()
    assert attributed(path) == first  # and again: neither a change nor a second count
    assert state.read_bytes() == once
    for by in ("server", "database,user"):
        attributed(path, "--by", by)
    assert len(known(state).cells) == 1


def test_a_trace_is_attributed_with_what_it_took_along(tmp_path: Path, state: Path) -> None:
    for alone in (0, 1):
        day, path = alone / 24, tmp_path / f"{alone}"
        attributed(trace(path, alone=alone, seed=alone, day=day, memory=with_memory()))
    along = TakenAlong.of("none", None)
    assert along.memory is not None
    assert len(along.memory.cells) == 2
    path = trace(tmp_path / "mixed", seed=7, day=7.0, memory=along.memory)
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
    found = attributed(trace(tmp_path / "b", seed=2, day=1.0), "--memory", file)
    assert found["model"]["memory"].startswith("1 stretch")
    assert len(known(file).cells) == 2
    assert not state.exists()


@pytest.mark.parametrize(
    ("memory", "meta"),
    [
        (Memory(BOX), {"energy": EnergyInfo("replay", "simulated", "a test")}),
        (Memory(BOX), {"energy": EnergyInfo("estimated", "estimated", "a test")}),
        (Memory(BOX), {"realtime_offset_ns": None}),
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
        memory_in_force.for_trace(Trace(path), str(file))
    with pytest.raises(UsageError, match="is a directory"):
        memory_in_force.for_trace(Trace(path), str(tmp_path))
    (path / TRACE_FILE).write_bytes(file.read_bytes())
    assert "the memory is not used: it is of another host" in notes_of(path)
    other = with_memory((replace(cell(1), conditions=USUAL._replace(energy="hwmon measured")),))
    assert "it is of hwmon measured" in notes_of(trace(tmp_path / "b", memory=other))


@pytest.mark.usefixtures("state")
def test_a_damaged_memory_of_a_trace_is_said(tmp_path: Path) -> None:
    path = trace(tmp_path / "a")
    for data, words in ((b"1\nhello", "is no memory"), (b"7\n" + bytes(64), "upgrade qjoule")):
        (path / TRACE_FILE).write_bytes(b"qjoule.memory/" + data)
        assert words in notes_of(path)


def test_a_damaged_memory_of_the_machine_hinders_nothing(tmp_path: Path, state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(b"rubbish")
    result = run(trace(tmp_path / "a", memory=with_memory()))
    assert result.exit_code == 0
    assert "the memory is not extended" in result.stderr
    assert state.read_bytes() == b"rubbish"
    memory, notes = memory_in_force.to_record()
    assert memory is not None and not memory.cells
    assert "is no memory" in notes[0]


def test_powercap_and_perf_read_the_same_counters(tmp_path: Path, state: Path) -> None:
    path = trace(tmp_path / "a", memory=with_memory((cell(1),)))
    meta = replace(Trace(path).meta, energy=EnergyInfo("perf", "measured"))
    found = memory_in_force.for_machine()
    assert found(meta).cells == ()  # this user's file is empty
    extend(state, with_memory((cell(1),)))
    assert len(memory_in_force.for_machine()(meta).cells) == 1


@pytest.mark.usefixtures("state")
def test_a_server_that_was_upgraded_counts_less(tmp_path: Path) -> None:
    attributed(trace(tmp_path / "a", seed=1, alone=0, memory=with_memory()))
    along = TakenAlong.of("none", None).memory
    labels = [GroupLabel("queries", (("fingerprint", "aaaa"),), "select a", "shop-db")]
    names, evidence = ("idle_w.0", "shared_w.0", *THETA), {}
    for version in ("8.0", "8.4"):
        found = Trace(trace(tmp_path / version, seed=4, day=1.0, version=version, memory=along))
        memory = Remembering.of(memory_in_force.for_trace(found), labels, found.meta)
        recalled = memory.recall("package/time", names, np.zeros(1, np.int64))
        assert recalled.known.all()
        evidence[version] = recalled.evidence.precision[-1, -1]
    assert evidence["8.4"] < 0.7 * evidence["8.0"]


def test_a_trace_takes_along_where_it_was_recorded(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend(state, with_memory((cell(1),)))
    monkeypatch.chdir(tmp_path)
    TakenAlong.of("none", None).packed().write()
    found = known(tmp_path / TRACE_FILE)
    assert (found.identity, len(found.cells)) == (BOX, 1)
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


def test_doctor_says_what_is_remembered(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_in_force.check(BOX).ok
    extend(state, with_memory((cell(1),)))
    assert "3 shapes" in memory_in_force.check(BOX).detail
    assert memory_in_force.check(replace(BOX, cpu="another")).ok is None
    state.write_bytes(b"rubbish")
    assert "is no memory" in memory_in_force.check(BOX).detail

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
    remember = top_live._remembering(None, failures)
    simulated = replace(cell(1), conditions=USUAL._replace(energy="replay simulated"))
    remember((simulated,))
    assert not state.exists()
    remember((cell(1), simulated))
    assert len(known(state).cells) == 1
    state.write_bytes(b"rubbish")
    remember((cell(2),))
    assert "is no memory" in failures[0]
    file = tmp_path / "mine.bin"
    top_live._remembering(str(file), failures)((simulated,))
    assert len(known(file).cells) == 1
    top_live._remembering("none", failures)((cell(3),))
