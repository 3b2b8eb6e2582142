# SPDX-License-Identifier: Apache-2.0
"""Lists the code that a running HotSpot JVM has made: compiled methods, interpreter and stubs.

The code cache (src/hotspot/share/memory/heap.cpp) consists of heaps of blocks, each with a length
in segments. A used block begins with a CodeBlob, which says where its code is and how large its
frames are (src/hotspot/share/code/codeBlob.hpp). Compile ids of methods (nmethod) are unique in a
JVM, so an address that has the same id twice had the same code all the time between.

Java 11 to 25: since 23, CodeBlobs have offsets of their code instead of addresses, and nmethod has
the fields of its base class CompiledMethod. The JVM runs meanwhile: inconsistent blocks are left
out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from operator import itemgetter

from qjoule.servers.jvm.hotspot import CannotRead, HotSpot, Memory

_HEAPS_MAX = 8  #: Java has three: profiled methods, other methods, all else
_HEAP_BYTES_MAX = 2 << 30  #: the largest ReservedCodeCacheSize
BLOBS_MAX = 1 << 16
_FRAME_WORDS_MAX = 1 << 16
_NAME_BYTES_MAX = 1024


class CodeKind(IntEnum):
    """How the caller of such code is found: enum compiled_kind of tracer/compiled.h."""

    OTHER = 0  #: it is not found
    METHOD = 1
    INTERPRETER = 2
    LEAF = 3  #: stubs that call nothing, except the one that calls Java
    FRAME = 4  #: frames of a fixed size


_KINDS = {"nmethod": CodeKind.METHOD, "native nmethod": CodeKind.METHOD}
_KINDS["Interpreter"] = CodeKind.INTERPRETER
_LEAVES = "StubRoutines"
#: Fields of a CodeBlob, by the names that they have had.
_BLOB = (
    *(("_name",), ("_size",), ("_frame_size",), ("_frame_complete_offset",)),
    *(("_code_begin", "_code_offset"), ("_code_end", "_data_offset")),
)
_Raw = tuple[int, ...]  #: a block: length, used, the fields of `_BLOB`, method, compile id


@dataclass(frozen=True, slots=True)
class Code:
    """Code at [begin, end). `complete`: offset from `begin` at which the frame is complete.

    `method`: address of the method's description; 0: no method. `compile_id`: of a method.
    """

    begin: int
    end: int
    kind: CodeKind
    frame_words: int
    complete: int
    name: str
    block: int
    method: int = 0
    compile_id: int = 0


class CodeCache:
    """The code cache of one JVM, read anew at each call."""

    def __init__(self, jvm: HotSpot, memory: Memory) -> None:
        """Raises `CannotRead` if this JVM's code cache has an unknown layout."""
        self._memory = memory
        self._heaps = jvm.static(("CodeCache", "_heaps"))
        length = ("GrowableArrayBase", "_len"), ("GenericGrowableArray", "_len")
        self._count, _ = jvm.field(*length)
        self._data = jvm.offset("GrowableArray<int>", "_data")
        space = jvm.offset("CodeHeap", "_memory")
        self._low = space + jvm.offset("VirtualSpace", "_low")
        self._high = space + jvm.offset("VirtualSpace", "_high")
        self._log2_segment = jvm.offset("CodeHeap", "_log2_segment_size")
        header = jvm.offset("HeapBlock", "_header")
        self._blob = jvm.size("HeapBlock")
        self._offsets = not jvm.shows("CodeBlob", "_code_begin")  #: of code, not its addresses
        of_header = [jvm.field(("HeapBlock::Header", name)) for name in ("_length", "_used")]
        of_blob = [jvm.field(*(("CodeBlob", name) for name in names)) for names in _BLOB]
        of_blob.append(jvm.field(("nmethod", "_method"), ("CompiledMethod", "_method")))
        of_blob.append(jvm.field(("nmethod", "_compile_id")))
        fields = [(header + at, kind) for at, kind in of_header]
        fields += [(self._blob + at, kind) for at, kind in of_blob]
        self._block = _Fields(fields)
        self._last: dict[int, tuple[_Raw, Code | None]] = {}
        self._names = _MethodNames(jvm, memory)
        self.call_stub = memory.number(jvm.static(("StubRoutines", "_call_stub_return_address")))
        self._kind_name = lru_cache(4096)(memory.string)

    def code(self) -> list[Code]:
        """Returns all code, by address. Code that has not changed is the same object as before.
        Raises `CannotRead`."""
        memory = self._memory
        array = memory.number(self._heaps)
        count, data = memory.number(array + self._count, 4), memory.number(array + self._data)
        if count > _HEAPS_MAX:
            raise CannotRead("the JVM has too many heaps of code")
        blocks: dict[int, tuple[_Raw, Code | None]] = {}
        for number in range(count):
            for block, raw in self._blocks(memory.number(data + 8 * number)):
                if len(blocks) >= BLOBS_MAX:
                    raise CannotRead("the JVM has too much code")
                before = self._last.get(block)
                same = before is not None and before[0] == raw
                blocks[block] = before if before and same else (raw, self._code(block, raw))
        self._last = blocks
        codes = [code for _, code in blocks.values() if code is not None]
        return sorted(codes, key=lambda code: code.begin)

    def name(self, code: Code) -> str:
        """Returns the method, such as java.lang.String.hashCode, or the JVM's name for its stub;
        empty if the code has been replaced."""
        with suppress(CannotRead):
            name = self._names.name(code.method) if code.method else code.name
            if self._code(code.block, self._block.read(self._memory, code.block)) == code:
                return name
        return ""

    def _blocks(self, heap: int) -> Iterator[tuple[int, _Raw]]:
        """Yields the addresses and fields of used blocks."""
        memory = self._memory
        low, high = memory.number(heap + self._low), memory.number(heap + self._high)
        log2 = memory.number(heap + self._log2_segment, 4)
        if not low <= high <= low + _HEAP_BYTES_MAX or not 3 <= log2 <= 16:
            raise CannotRead("the JVM's heap of code makes no sense")
        at = low
        while at < high:
            try:
                raw = self._block.read(memory, at)
            except CannotRead:
                if high - at < self._block.size:
                    return  # a free block at the end
                raise
            length = raw[0] << log2
            if not 0 < length <= high - at:
                return  # it is being changed, or is the last
            if raw[1]:
                yield at, raw
            at += length

    def _code(self, block: int, raw: _Raw) -> Code | None:
        """Returns None if the block is inconsistent, because it is being changed."""
        _, _, name_at, size, words, complete, begin, end, method, compile_id = raw
        blob = block + self._blob
        if self._offsets:
            begin, end = blob + begin, blob + end
        if not blob < begin <= end <= blob + size:
            return None
        try:
            name = self._kind_name(name_at)
        except CannotRead:
            return None
        kind = _KINDS.get(name, CodeKind.LEAF if name.startswith(_LEAVES) else CodeKind.OTHER)
        if kind is CodeKind.OTHER and words > 1:
            kind = CodeKind.FRAME
        words = words if 0 <= words < _FRAME_WORDS_MAX else 0
        if kind is not CodeKind.METHOD:
            return Code(begin, end, kind, words, 0, name, block)
        return Code(begin, end, kind, words, max(complete, 0), name, block, method, compile_id)


class _Fields:
    """Reads several fields of a structure at once. `fields`: offset, and `struct` format."""

    def __init__(self, fields: Sequence[tuple[int, str]]) -> None:
        self.size = max(at + struct.calcsize(f"<{kind}") for at, kind in fields)
        order = sorted(range(len(fields)), key=fields.__getitem__)
        layout, at = "<", 0
        for number in order:
            offset, kind = fields[number]
            if offset < at:
                raise CannotRead("fields of the JVM's code overlap")
            layout += f"{offset - at}x{kind}"
            at = offset + struct.calcsize(f"<{kind}")
        self._struct = struct.Struct(layout)
        self._pick = itemgetter(*(order.index(number) for number in range(len(fields))))

    def read(self, memory: Memory, address: int) -> _Raw:
        """Returns the fields in the given order. Raises `CannotRead`."""
        values: _Raw = self._pick(self._struct.unpack(memory.read(address, self.size)))
        return values


class _MethodNames:
    """Reads the class and the name of methods."""

    def __init__(self, jvm: HotSpot, memory: Memory) -> None:
        self._memory = memory
        self._const = jvm.offset("Method", "_constMethod")
        self._constants = jvm.offset("ConstMethod", "_constants")
        self._index = jvm.offset("ConstMethod", "_name_index")
        self._pool = jvm.size("ConstantPool")
        self._holder = jvm.offset("ConstantPool", "_pool_holder")
        self._class = jvm.offset("Klass", "_name")
        self._length = jvm.offset("Symbol", "_length")
        self._body = jvm.offset("Symbol", "_body")
        self._of_class = lru_cache(1 << 14)(self._read_class)

    def name(self, method: int) -> str:
        """Returns both, joined by a dot. Raises `CannotRead`."""
        memory = self._memory
        const = memory.number(method + self._const)
        constants = memory.number(const + self._constants)
        index = memory.number(const + self._index, 2)
        name = self._symbol(memory.number(constants + self._pool + 8 * index))
        return f"{self._of_class(memory.number(constants + self._holder))}.{name}"

    def _read_class(self, klass: int) -> str:
        return self._symbol(self._memory.number(klass + self._class)).replace("/", ".")

    def _symbol(self, address: int) -> str:
        size = min(self._memory.number(address + self._length, 2), _NAME_BYTES_MAX)
        return self._memory.read(address + self._body, size).decode(errors="replace")
