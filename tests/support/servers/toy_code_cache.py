# SPDX-License-Identifier: Apache-2.0
"""The parts of a HotSpot that list its code, in a file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qjoule.servers.jvm.code_cache import CodeCache
from qjoule.servers.jvm.hotspot import HotSpot
from servers.hostile import ToyMemory, hotspot, vm_structs

ROWS = [
    *(("GrowableArrayBase", "_len", False, 0, 0), ("GrowableArray<int>", "_data", False, 8, 0)),
    *(("CodeHeap", "_memory", False, 8, 0), ("CodeHeap", "_log2_segment_size", False, 40, 0)),
    *(("VirtualSpace", "_low", False, 0, 0), ("VirtualSpace", "_high", False, 8, 0)),
    ("HeapBlock", "_header", False, 0, 0),
    *(("Method", "_constMethod", False, 8, 0), ("ConstMethod", "_constants", False, 8, 0)),
    *(("ConstMethod", "_name_index", False, 16, 0), ("ConstantPool", "_pool_holder", False, 8, 0)),
    *(("Klass", "_name", False, 8, 0), ("Symbol", "_length", False, 0, 0)),
    *(("Symbol", "_body", False, 2, 0), ("JVMFlag", "_name", False, 0, 0)),
    ("JVMFlag", "_addr", False, 8, 0),
]
SIZES = [("JVMFlag", 16), ("ConstantPool", 16)]
SIZES += [("int", 4), ("int16_t", 2), ("uint32_t", 4), ("size_t", 8), ("bool", 1), ("address", 8)]
_FORMATS = {"int": "i", "int16_t": "h", "uint32_t": "I", "bool": "B"}  #: else "Q"
Block = tuple[tuple[str, str, str, int], ...]  #: type, field, its type, offset in the block
#: A block of Java 11 to 22, and of 23 and later.
ADDRESSES: Block = (
    *(("HeapBlock::Header", "_length", "size_t", 0), ("HeapBlock::Header", "_used", "bool", 8)),
    *(("CodeBlob", "_name", "const char*", 16), ("CodeBlob", "_size", "int", 24)),
    *(("CodeBlob", "_frame_size", "int", 28), ("CodeBlob", "_frame_complete_offset", "int", 32)),
    *(("CodeBlob", "_code_begin", "address", 40), ("CodeBlob", "_code_end", "address", 48)),
    *(("CompiledMethod", "_method", "Method*", 56), ("nmethod", "_compile_id", "int", 64)),
)
OFFSETS: Block = (
    *(("HeapBlock::Header", "_length", "uint32_t", 0), ("HeapBlock::Header", "_used", "bool", 4)),
    *(("CodeBlob", "_name", "const char*", 8), ("CodeBlob", "_size", "int", 16)),
    *(("CodeBlob", "_code_offset", "int", 20), ("CodeBlob", "_data_offset", "int", 24)),
    ("CodeBlob", "_frame_size", "int", 28),
    ("CodeBlob", "_frame_complete_offset", "int16_t", 32),
    *(("nmethod", "_method", "Method*", 40), ("nmethod", "_compile_id", "int", 48)),
)
SEGMENT = 7  #: log2 of its bytes
EVIL = "\x1b[31m<b>"


@dataclass(frozen=True)
class ToyJvm:
    """A JVM with two methods, a stub and a free block. `heap`: where its blocks begin."""

    memory: ToyMemory
    jvm: HotSpot
    heap: int
    code_heap: int
    block: Block

    def cache(self) -> CodeCache:
        return CodeCache(self.jvm, self.jvm._memory)

    def set(self, value: int, *names: str) -> None:
        """Sets the field that has one of these names, of the first block."""
        (at, kind), *_ = (
            (self.heap + offset, _FORMATS.get(kind, "Q"))
            for _, name, kind, offset in self.block
            if name in names
        )
        self.change(at, struct.pack(f"<{kind}", value))

    def change(self, address: int, content: bytes) -> None:
        with self.memory.path.open("r+b") as file:
            file.seek(address)
            file.write(content)


def method(memory: ToyMemory, klass: str, name: str) -> int:
    def symbol(text: str) -> int:
        return memory.put(struct.pack("<H", len(text)) + text.encode())

    holder = memory.words(0, symbol(klass))
    pool = memory.words(0, holder, 0, symbol(name))
    const = memory.words(0, pool, 1)
    return memory.words(0, const)


@contextmanager
def toy_jvm(directory: Path, block: Block = ADDRESSES) -> Iterator[ToyJvm]:
    memory = ToyMemory(directory / "mem")
    kind = {name: memory.put(name.encode() + b"\0") for name in ("nmethod", "Interpreter")}
    methods = [method(memory, "shop/Orders", "read"), method(memory, f"x/{EVIL}", "<init>")]
    blocks = [("nmethod", methods[0], 11), ("", 0, 0), ("nmethod", methods[1], 12)]
    blocks.append(("Interpreter", 0, 0))
    size = 1 << SEGMENT
    heap = memory.put(bytes(len(blocks) * 2 * size))
    header = 16 if block is ADDRESSES else 8
    for number, (name, method_address, compile_id) in enumerate(blocks):
        at = heap + number * 2 * size
        base = 0 if block is ADDRESSES else at + header
        code = at + 100 - base
        values = {"_length": 2, "_used": bool(name), "_name": kind.get(name, 0), "_size": 240}
        values |= {"_frame_size": 5, "_frame_complete_offset": 4, "_method": method_address}
        values |= {"_code_begin": code, "_code_end": code + 90, "_compile_id": compile_id}
        values |= {"_code_offset": code, "_data_offset": code + 90}
        for _, field, type_name, offset in block:
            struct.pack_into(
                f"<{_FORMATS.get(type_name, 'Q')}", memory.content, at + offset, values[field]
            )
    space = (heap, heap + len(blocks) * 2 * size)
    code_heap = memory.words(0, *space, 0, 0, SEGMENT)
    array = memory.words(1, memory.words(code_heap))
    flag = memory.words(memory.put(b"PreserveFramePointer\0"), memory.words(1))
    statics = {
        ("CodeCache", "_heaps"): memory.words(array),
        ("StubRoutines", "_call_stub_return_address"): memory.words(0x7000),
        ("JVMFlag", "flags"): memory.words(flag),
        ("JVMFlag", "numFlags"): memory.words(1),
    }
    rows = [*ROWS, *((*name, True, 0, at) for name, at in statics.items())]
    for owner, field, _, offset in block:
        rows.append((owner, field, False, offset - header * (owner[:4] != "Heap"), 0))
    types = {"_len": "int", **{field: type_name for _, field, type_name, _ in block}}
    sizes = [*SIZES, ("HeapBlock", header)]
    with hotspot(memory, vm_structs(memory, rows, sizes, type_names=types)) as jvm:
        yield ToyJvm(memory, jvm, heap, code_heap, block)
