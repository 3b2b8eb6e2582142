# SPDX-License-Identifier: Apache-2.0
"""A memory's file: what it refuses, how memories are merged, and two that write at once."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrations import HERE, NOW_S, USUAL, cell, memory
from qjoule.errors import QjouleError
from qjoule.machine import memory as module
from qjoule.machine import memory_file as file
from qjoule.machine.identity import Identity
from qjoule.machine.memory import Memory, NotThisMachine, extend, load
from qjoule.model.fit.cells import Cell


def same(a: Memory, b: Memory) -> bool:
    return a.to_bytes() == b.to_bytes()


def test_the_file_holds_all_of_it(tmp_path: Path) -> None:
    stored = memory(1, 2, 3)
    path = tmp_path / "memory.bin"
    assert load(path) is None
    path.write_bytes(stored.to_bytes())
    loaded = load(path)
    assert loaded is not None
    assert same(loaded, stored)
    for ours, theirs in zip(stored.cells, loaded.cells, strict=True):
        for name in ("fixed", "cross", "own", "moment", "keys", "members", "value"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


def test_merging_has_no_order_and_counts_nothing_twice() -> None:
    a, b, c = memory(1, 2), memory(2, 3), memory(4)
    assert same(a.merged(b), b.merged(a))
    assert same(a.merged(b).merged(c), a.merged(c.merged(b)))
    assert same(a.merged(a), a)
    assert len(a.merged(b).cells) == 4  # the seed 2 is of two different days


@pytest.mark.parametrize(
    "identity",
    [
        replace(HERE, host="db2", machine="f" * 32),
        replace(HERE, cpu="AMD EPYC 7763"),
    ],
)
def test_another_machine_is_refused(tmp_path: Path, identity: Identity) -> None:
    path = tmp_path / "memory.bin"
    extend(path, memory(1))
    before = path.read_bytes()
    with pytest.raises(NotThisMachine):
        memory(1).merged(Memory(identity))
    with pytest.raises(QjouleError, match="not extended"):
        extend(path, Memory(identity, (cell(9),)))
    assert path.read_bytes() == before


def resealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def with_header(change: Callable[[dict[str, Any]], object]) -> bytes:
    data = memory(1).to_bytes()
    begin = len(file.SCHEMA) + 8
    length = int.from_bytes(data[len(file.SCHEMA) : begin], "little")
    document = json.loads(data[begin : begin + length])
    change(document)
    text = json.dumps(document).encode()
    body = file.SCHEMA + len(text).to_bytes(8, "little") + text + data[begin + length : -32]
    return resealed(body)


def first(name: str, value: object) -> bytes:
    return with_header(lambda d: d["cells"][0].update({name: value}))


def with_arrays(change: Callable[[Cell], Cell]) -> bytes:
    return file.encode(HERE, [change(cell(1))])


def with_first(name: str, value: float) -> bytes:
    """The first number of an array is another one."""

    def change(original: Cell) -> Cell:
        array = getattr(original, name).copy()
        array.flat[0] = value
        return replace(original, **{name: array})

    return with_arrays(change)


DAMAGED = {
    "empty": b"",
    "a huge header": file.SCHEMA + b"\xff" * 8 + b"\0" * 64,
    "no checksum": memory(1).to_bytes()[:-32],
    "cut off": resealed(memory(1).to_bytes()[:-60]),
    "more bytes": resealed(memory(1).to_bytes()[:-32] + b"\0" * 8),
    "a nested header": resealed(file.SCHEMA + (100_000).to_bytes(8, "little") + b"[" * 100_000),
    "cells of a wrong type": with_header(lambda d: d.update(cells=7)),
    "too many shapes": first("shapes", 2**40),
    "negative shapes": first("shapes", -1),
    "a name twice": first("names", ["a"] * 9),
    "a spread of nothing": first("spread", 0.0),
    "another condition": first("conditions", ["a"]),
    "not finite": with_first("centred", np.inf),
    "negative evidence": with_first("fixed", -1.0),
    "evidence that contradicts itself": with_first("cross", 1e6),
    "a shape twice": with_arrays(lambda c: replace(c, keys=np.ones(3, np.uint64))),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "memory.bin"
    path.write_bytes(data)
    with pytest.raises(QjouleError, match="is no memory"):
        load(path)
    with pytest.raises(QjouleError):
        extend(path, memory(1))
    assert path.read_bytes() == data  # it is the user's to remove


def test_flipped_bytes_newer_versions_and_endless_files_are_refused(tmp_path: Path) -> None:
    data = memory(1).to_bytes()
    path = tmp_path / "memory.bin"
    for at in np.random.default_rng(0).integers(0, len(data), 60).tolist():
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(QjouleError):
            load(path)
    path.write_bytes(data.replace(b"memory/1", b"memory/2", 1))
    with pytest.raises(QjouleError, match=r"version 2.*upgrade qjoule"):
        load(path)
    with path.open("wb") as document:
        document.truncate(1 << 40)
    with pytest.raises(QjouleError, match="larger"):
        load(path)


def _agent(path: Path, numbers: range) -> None:
    for number in numbers:
        extend(path, Memory(HERE, (cell(number, when_s=NOW_S + number),)))


def test_two_agents_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.bin"
    spawn = multiprocessing.get_context("spawn")
    agents = [spawn.Process(target=_agent, args=(path, range(i, 12, 2))) for i in (0, 1)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join(60)
        assert agent.exitcode == 0
    expected = Memory(HERE, tuple(cell(n, when_s=NOW_S + n) for n in range(12)))
    loaded = load(path)
    assert loaded is not None
    assert same(loaded, Memory(module.lasting(HERE)).merged(expected))
    assert sorted(p.name for p in tmp_path.iterdir()) == [".memory.bin.lock", "memory.bin"]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "memory.bin"
    (tmp_path / ".memory.bin.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(QjouleError, match="cannot write"):
        extend(path, memory(1))
    assert not (tmp_path / "elsewhere").exists()


def test_conditions_are_not_mixed_when_folded() -> None:
    cells = [
        replace(cell(n, when_s=NOW_S + 60 * n), conditions=USUAL._replace(governor=f"g{n % 2}"))
        for n in range(2 * module.MAX_CELLS + 6)
    ]
    bounded = Memory(HERE, tuple(cells)).bounded()
    assert {cell_.conditions.governor for cell_ in bounded.cells} == {"g0", "g1"}
    assert sum(cell_.folded for cell_ in bounded.cells) == 2
    members = np.concatenate([cell_.members for cell_ in bounded.cells])
    assert sorted(members.tolist()) == sorted(int(cell_.members[0]) for cell_ in cells)
