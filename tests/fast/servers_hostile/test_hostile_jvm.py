# SPDX-License-Identifier: Apache-2.0
"""Fake JVM tables: a process can write anything to its own memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.jvm.hotspot import CannotRead
from servers.hostile import ToyMemory, hotspot, vm_structs

#: The structures needed to read a list of classes: (type, field, static, offset, address).
FIELDS = [
    ("ClassLoaderData", "_next", False, 0, 0),
    ("ClassLoaderData", "_klasses", False, 8, 0),
    ("Klass", "_name", False, 0, 0),
    ("Klass", "_next_link", False, 8, 0),
    ("Symbol", "_length", False, 0, 0),
    ("Symbol", "_body", False, 2, 0),
    ("JVMFlag", "_name", False, 0, 0),
    ("JVMFlag", "_addr", False, 8, 0),
]
SIZES = [("JVMFlag", 16), ("ConstantPool", 16)]


@pytest.fixture
def memory(tmp_path: Path) -> ToyMemory:
    return ToyMemory(tmp_path / "mem")


def statics(head: int, flags: int = 0, count: int = 0) -> list[tuple[str, str, bool, int, int]]:
    return [
        ("ClassLoaderDataGraph", "_head", True, 0, head),
        ("JVMFlag", "flags", True, 0, flags),
        ("JVMFlag", "numFlags", True, 0, count),
    ]


def lists(memory: ToyMemory, loader: int, klass: int, name: int = 0) -> dict[str, int]:
    """A loader and a class at fixed places; each is its own next one if its argument is not 0."""
    at = len(memory.content)
    memory.words(at if loader else 0, at + 24)  # its next is itself
    memory.words(name, at + 24 if klass else 0)
    zero = memory.words(0)
    return vm_structs(memory, [*FIELDS, *statics(memory.words(at), zero, zero)], SIZES)


@pytest.mark.parametrize(
    ("loader", "klass", "name"),
    [(1, 0, b""), (0, 1, b""), (0, 1, b"\x01\x00b")],  # with names, the bound on reads is first
)
def test_lists_in_a_circle_end(memory: ToyMemory, loader: int, klass: int, name: bytes) -> None:
    variables = lists(memory, loader, klass, memory.put(name) if name else 0)
    with hotspot(memory, variables) as hotspot_jvm, pytest.raises(CannotRead, match="no end"):
        hotspot_jvm.classes({"a"})


@pytest.mark.parametrize("size", [0, 1 << 17, 1 << 63])
def test_flags_of_any_size_are_refused(size: int, memory: ToyMemory) -> None:
    zero, many = memory.words(0), memory.words((1 << 64) - 1)
    variables = vm_structs(memory, [*FIELDS, *statics(zero, zero, many)], [("JVMFlag", size)])
    with pytest.raises(CannotRead), hotspot(memory, variables):
        pass


@pytest.mark.parametrize("pointer", [1 << 47, (1 << 64) - 1, (1 << 64) - 4096])
def test_wild_pointers(pointer: int, memory: ToyMemory) -> None:
    head = memory.words(pointer)
    zero = memory.words(0)
    variables = vm_structs(memory, [*FIELDS, *statics(head, zero, zero)], SIZES)
    with hotspot(memory, variables) as one, pytest.raises(CannotRead):
        one.classes({"a"})
    for name in variables:
        with pytest.raises(CannotRead), hotspot(memory, variables | {name: pointer}):
            pass


@pytest.mark.parametrize("stride", [0, 1 << 20, (1 << 64) - 1])
def test_strides_that_make_no_sense(stride: int, memory: ToyMemory) -> None:
    zero = memory.words(0)
    variables = vm_structs(memory, [*FIELDS, *statics(zero, zero, zero)], SIZES, stride)
    with pytest.raises(CannotRead, match="make no sense"), hotspot(memory, variables):
        pass


@pytest.mark.parametrize("offset", [1 << 17, (1 << 64) - 1])
def test_structures_of_any_size(offset: int, memory: ToyMemory) -> None:
    """A class is read up to its last field: that many bytes were requested."""
    fields = [field for field in FIELDS if field[:2] != ("Klass", "_name")]
    zero, head = memory.words(0), memory.words(4096)
    wild = [("Klass", "_name", False, offset, 0)]
    variables = vm_structs(memory, [*fields, *wild, *statics(head, zero, zero)], SIZES)
    with hotspot(memory, variables) as one, pytest.raises(CannotRead, match="Klass::_name"):
        one.classes({"a"})
