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
    *(("HeapBlock::Header", "_length", False, 0, 0), ("HeapBlock::Header", "_used", False, 8, 0)),
    *(("CodeBlob", "_name", False, 0, 0), ("CodeBlob", "_size", False, 8, 0)),
    *(("CodeBlob", "_frame_size", False, 12, 0), ("CodeBlob", "_code_begin", False, 24, 0)),
    *(
        ("CodeBlob", "_frame_complete_offset", False, 16, 0),
        ("CodeBlob", "_code_end", False, 32, 0),
    ),
    *(("CompiledMethod", "_method", False, 40, 0), ("nmethod", "_compile_id", False, 48, 0)),
    *(("Method", "_constMethod", False, 8, 0), ("ConstMethod", "_constants", False, 8, 0)),
    *(("ConstMethod", "_name_index", False, 16, 0), ("ConstantPool", "_pool_holder", False, 8, 0)),
    *(("Klass", "_name", False, 8, 0), ("Symbol", "_length", False, 0, 0)),
    *(("Symbol", "_body", False, 2, 0), ("JVMFlag", "_name", False, 0, 0)),
    ("JVMFlag", "_addr", False, 8, 0),
]
SIZES = [("JVMFlag", 16), ("ConstantPool", 16), ("HeapBlock", 16), ("CodeBlob", 40)]
SEGMENT = 7  #: log2 of its bytes
EVIL = "\x1b[31m<b>"


@dataclass(frozen=True)
class ToyJvm:
    """A JVM with two methods, a stub and a free block. `heap`: where its blocks begin."""

    memory: ToyMemory
    jvm: HotSpot
    heap: int
    code_heap: int

    @property
    def blob(self) -> int:
        return self.heap + 16

    def cache(self) -> CodeCache:
        return CodeCache(self.jvm, self.jvm._memory)

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
def toy_jvm(directory: Path) -> Iterator[ToyJvm]:
    memory = ToyMemory(directory / "mem")
    kind = {name: memory.put(name.encode() + b"\0") for name in ("nmethod", "Interpreter")}
    methods = [method(memory, "shop/Orders", "read"), method(memory, f"x/{EVIL}", "<init>")]
    blocks = [("nmethod", methods[0], 11), ("", 0, 0), ("nmethod", methods[1], 12)]
    blocks.append(("Interpreter", 0, 0))
    size = 1 << SEGMENT
    heap = memory.put(bytes(len(blocks) * 2 * size))
    for number, (name, method_address, compile_id) in enumerate(blocks):
        at = heap + number * 2 * size
        code = at + 100
        head = struct.pack("<QB7x", 2, bool(name))
        blob = struct.pack(
            "<QiiiiQQQi", kind.get(name, 0), 240, 5, 4, 0, code, code + 90, method_address, 0
        )
        content = head + blob[:-4] + struct.pack("<i", compile_id)
        memory.content[at : at + len(content)] = content
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
    with hotspot(memory, vm_structs(memory, rows, SIZES)) as jvm:
        yield ToyJvm(memory, jvm, heap, code_heap)
