# SPDX-License-Identifier: Apache-2.0
"""Fake JVM tables: a process can write anything to its own memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.jvm.hotspot import CannotRead, HotSpot, Memory
from servers.hostile import ToyMemory, vm_structs

#: The structures needed to read a list of classes: (type, field, static, offset, address).
FIELDS = [
    ("ClassLoaderData", "_next", False, 0, 0),
    ("ClassLoaderData", "_klasses", False, 8, 0),
    ("Klass", "_next_link", False, 8, 0),
    ("Symbol", "_length", False, 0, 0),
    ("Symbol", "_body", False, 2, 0),
    ("JVMFlag", "_name", False, 0, 0),
    ("JVMFlag", "_addr", False, 8, 0),
]


@contextmanager
def jvm(descriptor: int, variables: dict[str, int]) -> Iterator[HotSpot]:
    """A JVM with this memory, and a libjvm.so with these variables."""

    class Library:
        path = "libjvm.so"

        def variable(self, name: str) -> Symbol | None:
            return Symbol(name, variables[name], 8, ".dynsym") if name in variables else None

    try:
        yield HotSpot(Memory(descriptor), cast(Executable, Library()), 0)
    finally:
        os.close(descriptor)


@pytest.fixture
def memory(tmp_path: Path) -> ToyMemory:
    return ToyMemory(tmp_path / "mem")


def tables(
    memory: ToyMemory,
    head: int = 0,
    *,
    count: int = 0,
    flag_bytes: int = 16,
    stride: int = 40,
    name_at: int = 0,
) -> dict[str, int]:
    """The variables of a JVM whose list of classes begins at `head`; all else is in order."""
    fields = [
        *FIELDS,
        ("Klass", "_name", False, name_at, 0),
        ("ClassLoaderDataGraph", "_head", True, 0, memory.words(head)),
        ("JVMFlag", "flags", True, 0, memory.words(0)),
        ("JVMFlag", "numFlags", True, 0, memory.words(count)),
    ]
    return vm_structs(memory, fields, [("JVMFlag", flag_bytes), ("ConstantPool", 16)], stride)


@pytest.mark.parametrize(
    ("loader", "klass", "name"),
    [(1, 0, b""), (0, 1, b""), (0, 1, b"\x01\x00b")],  # with names, the bound on reads is first
)
def test_lists_in_a_circle_end(memory: ToyMemory, loader: int, klass: int, name: bytes) -> None:
    """A loader and a class, one of which is its own next one."""
    name_at = memory.put(name) if name else 0
    at = len(memory.content)
    memory.words(at if loader else 0, at + 24)
    memory.words(name_at, at + 24 if klass else 0)
    variables = tables(memory, at)
    with jvm(memory.open(), variables) as one, pytest.raises(CannotRead, match="no end"):
        one.classes({"a"})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"flag_bytes": size, "count": -1} for size in (0, 1 << 17, 1 << 63)),
        *({"stride": stride} for stride in (0, 1 << 20, (1 << 64) - 1)),
    ],
)
def test_sizes_that_make_no_sense_are_refused(memory: ToyMemory, wrong: dict[str, int]) -> None:
    variables = tables(memory, **wrong)
    with pytest.raises(CannotRead), jvm(memory.open(), variables):
        pass


@pytest.mark.parametrize("pointer", [1 << 47, (1 << 64) - 1, (1 << 64) - 4096])
def test_wild_pointers(pointer: int, memory: ToyMemory) -> None:
    variables = tables(memory, pointer)
    with jvm(memory.open(), variables) as one, pytest.raises(CannotRead):
        one.classes({"a"})
    for name in variables:
        with pytest.raises(CannotRead), jvm(memory.open(), variables | {name: pointer}):
            pass


@pytest.mark.parametrize("offset", [1 << 17, (1 << 64) - 1])
def test_structures_of_any_size(offset: int, memory: ToyMemory) -> None:
    """A class is read up to its last field: that many bytes were requested."""
    variables = tables(memory, 4096, name_at=offset)
    with jvm(memory.open(), variables) as one, pytest.raises(CannotRead, match="Klass::_name"):
        one.classes({"a"})
