# SPDX-License-Identifier: Apache-2.0
"""Finds the field offsets of objects in a running HotSpot JVM.

The JVM lays objects out at its start, and describes its own structures in its memory for debuggers:
`gHotSpotVMStructs` and related tables (src/hotspot/share/runtime/vmStructs.cpp). These lead to a
class by its name, and in the class to a field's offset, which needs `InstanceKlass::_fields` of
Java 11 to 20. All else holds for later versions, too.

This module writes nothing, runs no code in the JVM, and does not stop it. Data may change while
read: all loops are bounded, and inconsistent data is an error.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from qjoule.errors import QjouleError
from qjoule.servers.access import Access, ProcFile, mapped_files
from qjoule.servers.elf import Executable, open_executable

_ENTRIES_MAX = 20_000  #: entries of one table: Java 17 has 801 fields, 769 types
_CLASSES_MAX = 200_000
#: Most bytes read of one JVM. A big JVM takes a fifth of it, with three reads per class.
_READS_MAX, _BYTES_MAX = 700_000, 256 << 20
_READ_BYTES_MAX = 1 << 20  #: most bytes of one read: 65535 fields of a class take less
_STRUCT_BYTES_MAX = 65536  #: largest structure of the JVM, and largest offset in one
_NAME_BYTES_MAX = 512
_STATIC = 0x0008  # JVM specification, table 4.5-A
_SLOTS = 6  #: u2 per field: access, name, signature, value, offset low and high (fieldInfo.hpp)
_OFFSET_IS_SET = 1  # FIELDINFO_TAG_OFFSET (the same file)
_TAG_BITS = 2  #: below the offset (the same file)
#: `struct` formats by size, signed: sizes and addresses are far below the half of their types.
_FORMATS = {1: "b", 2: "h", 4: "i", 8: "q"}


class CannotRead(QjouleError):
    """The JVM does not contain the requested information, or not in a known form."""


class Memory:
    """Another process's memory. `/proc/PID/mem` needs the right to trace that process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.begin()

    def read(self, address: int, size: int) -> bytes:
        """Returns exactly `size` bytes.

        Raises:
            CannotRead: some cannot be read, or more has been read than any JVM needs.
        """
        self._reads += 1
        self._bytes += size
        if size > _READ_BYTES_MAX or self._reads > _READS_MAX or self._bytes > _BYTES_MAX:
            raise CannotRead("the JVM's tables have no end")
        try:
            content = os.pread(self._descriptor, size, address)
        except (OSError, OverflowError) as error:
            raise CannotRead(f"no memory at {address:#x}: {error}") from error
        if len(content) != size:
            raise CannotRead(f"no {size} bytes of memory at {address:#x}")
        return content

    def begin(self) -> None:
        """Resets the bound on reads, for another reading of the JVM."""
        self._reads, self._bytes = 0, 0

    def number(self, address: int, size: int = 8) -> int:
        return int.from_bytes(self.read(address, size), "little")

    def string(self, address: int) -> str:
        """Reads a C string of at most 512 bytes; empty at address 0."""
        if not address:
            return ""
        content = b""
        while b"\0" not in content and len(content) < _NAME_BYTES_MAX:
            at = address + len(content)
            content += self.read(at, 64 - at % 64)  # never across the end of a page
        return content.partition(b"\0")[0].decode("latin-1")


@dataclass(frozen=True)
class _Field:
    static: bool
    offset: int
    address: int
    type_name: int  #: address of its C++ type's name


class HotSpot:
    """One JVM, while it runs. Build it with `open_hotspot`."""

    def __init__(self, memory: Memory, library: Executable, base: int) -> None:
        """`base`: the address of the first byte of the library, which is libjvm.so."""
        self._memory = memory
        self._library = library
        self._base = base
        self._fields = dict(self._read_fields())
        self._sizes = dict(self._read_sizes())
        self._flags = dict(self._read_flags())

    def flag(self, name: str) -> bool:
        """Reads a boolean flag of the command line. A flag that this JVM lacks is false."""
        address = self._flags.get(name)
        return address is not None and self._memory.number(address, 1) != 0

    def static(self, *names: tuple[str, str]) -> int:
        """Returns the address of the first of these static fields, (type, field), that exists."""
        for name in names:
            field = self._fields.get(name)
            if field is not None and field.static:
                return field.address
        raise CannotRead(f"this JVM does not show {names[0][0]}::{names[0][1]}")

    def offset(self, type_name: str, field_name: str) -> int:
        """Returns the offset of a field in one of the JVM's own structures."""
        field = self._fields.get((type_name, field_name))
        if field is None or field.static:
            raise CannotRead(f"this JVM does not show {type_name}::{field_name}")
        if field.offset > _STRUCT_BYTES_MAX:
            raise CannotRead(f"{type_name}::{field_name} is at {field.offset:#x} of it")
        return field.offset

    def shows(self, type_name: str, field_name: str) -> bool:
        return (type_name, field_name) in self._fields

    def field(self, *names: tuple[str, str]) -> tuple[int, str]:
        """Returns offset and `struct` format of the first existing one of (type, field)."""
        name = next((name for name in names if self.shows(*name)), names[0])
        offset = self.offset(*name)
        type_name = self._memory.string(self._fields[name].type_name)
        size = 8 if type_name.endswith("*") else self._sizes.get(type_name, 0)
        if size not in _FORMATS:
            raise CannotRead(f"this JVM does not show the size of {'::'.join(name)}")
        return offset, _FORMATS[size]

    def size(self, type_name: str) -> int:
        if type_name not in self._sizes:
            raise CannotRead(f"this JVM does not show the size of {type_name}")
        if self._sizes[type_name] > _STRUCT_BYTES_MAX:
            raise CannotRead(f"{type_name} has {self._sizes[type_name]} bytes")
        return self._sizes[type_name]

    def classes(self, names: set[str]) -> dict[str, int]:
        """Returns addresses of the loaded classes of these names, `java/lang/String`.

        Raises:
            CannotRead: one is not loaded, or loaded twice.
        """
        by_name: dict[str, int] = {}
        for name, klass in self._loaded(max(map(len, names))):
            if name in names:
                if name in by_name:
                    raise CannotRead(f"two classes are named {name}")
                by_name[name] = klass
        missing = sorted(names - by_name.keys())
        if missing:
            raise CannotRead(f"the JVM has not loaded {missing[0]} (yet)")
        return by_name

    def field_offsets(self, klass: int, wanted: set[str]) -> dict[str, int]:
        """Returns offsets of fields in a class's objects by name, without inherited fields."""
        memory = self._memory
        constants = memory.number(klass + self.offset("InstanceKlass", "_constants"))
        symbols = constants + self.size("ConstantPool")
        fields = memory.number(klass + self.offset("InstanceKlass", "_fields"))
        count = memory.number(klass + self.offset("InstanceKlass", "_java_fields_count"), 2)
        at = fields + self.offset("Array<u2>", "_data")
        words = struct.unpack(f"<{count * _SLOTS}H", memory.read(at, count * _SLOTS * 2))
        offsets: dict[str, int] = {}
        for access, name, _, _, low, high in zip(*[iter(words)] * _SLOTS, strict=True):
            if access & _STATIC:
                continue
            text = self._symbol(memory.number(symbols + 8 * name), _NAME_BYTES_MAX)
            if text in wanted:
                if not low & _OFFSET_IS_SET:
                    raise CannotRead(f"{text} has no offset yet")
                offsets[text] = (high << 16 | low) >> _TAG_BITS
        missing = sorted(wanted - offsets.keys())
        if missing:
            raise CannotRead(f"its class has no field {missing[0]}")
        return offsets

    def _loaded(self, longest: int) -> Iterator[tuple[str, int]]:
        """Yields names and addresses; "" for names that are longer than `longest`."""
        memory, count = self._memory, 0
        next_loader = self.offset("ClassLoaderData", "_next")
        classes = self.offset("ClassLoaderData", "_klasses")
        name = self.offset("Klass", "_name")
        next_class = self.offset("Klass", "_next_link")
        loader = memory.number(self.static(("ClassLoaderDataGraph", "_head")))
        while loader:
            klass = memory.number(loader + classes)
            while klass:
                count += 1
                if count > _CLASSES_MAX:
                    raise CannotRead("the JVM's list of classes has no end")
                content = memory.read(klass, max(name, next_class) + 8)
                (symbol,) = struct.unpack_from("<Q", content, name)
                if symbol:
                    yield self._symbol(symbol, longest), klass
                (klass,) = struct.unpack_from("<Q", content, next_class)
            count += 1
            if count > _CLASSES_MAX:
                raise CannotRead("the JVM's list of class loaders has no end")
            loader = memory.number(loader + next_loader)

    def _symbol(self, address: int, longest: int) -> str:
        length = self._memory.number(address + self.offset("Symbol", "_length"), 2)
        if length > longest:
            return ""
        body = address + self.offset("Symbol", "_body")
        return self._memory.read(body, length).decode("latin-1")

    def _read_fields(self) -> Iterator[tuple[tuple[str, str], _Field]]:
        memory = self._memory
        entries, (stride, owner, name, static, offset, address, type_name) = self._table(
            "gHotSpotVMStruct",
            "TypeNameOffset",
            "FieldNameOffset",
            "IsStaticOffset",
            "OffsetOffset",
            "AddressOffset",
            "TypeStringOffset",
        )
        for entry in range(entries, entries + stride * _ENTRIES_MAX, stride):
            owner_name = memory.string(memory.number(entry + owner))
            if not owner_name:
                return
            yield (
                (owner_name, memory.string(memory.number(entry + name))),
                _Field(
                    memory.number(entry + static, 4) != 0,
                    memory.number(entry + offset),
                    memory.number(entry + address),
                    memory.number(entry + type_name),
                ),
            )

    def _read_sizes(self) -> Iterator[tuple[str, int]]:
        memory = self._memory
        entries, (stride, name, size) = self._table(
            "gHotSpotVMType", "TypeNameOffset", "SizeOffset"
        )
        for entry in range(entries, entries + stride * _ENTRIES_MAX, stride):
            type_name = memory.string(memory.number(entry + name))
            if not type_name:
                return
            yield type_name, memory.number(entry + size)

    def _table(self, prefix: str, *columns: str) -> tuple[int, list[int]]:
        """Returns the address of a table, and its stride and columns."""
        names = ["ArrayStride", *columns]
        numbers = [self._variable(f"{prefix}Entry{name}") for name in names]
        if not numbers[0] or max(numbers) > _STRUCT_BYTES_MAX:
            raise CannotRead(f"the entries of {prefix}s make no sense")
        return self._variable(f"{prefix}s"), numbers

    def _variable(self, name: str) -> int:
        variable = self._library.variable(name)
        if variable is None:
            raise CannotRead(f"no {name} in {self._library.path}")
        return self._memory.number(self._base + variable.vaddr)

    def _read_flags(self) -> Iterator[tuple[str, int]]:
        """JVMFlag (src/hotspot/share/runtime/flags/jvmFlag.hpp): where each flag's value is."""
        memory = self._memory
        flags = memory.number(self.static(("JVMFlag", "flags")))
        count = memory.number(self.static(("JVMFlag", "numFlags")))
        stride = self.size("JVMFlag")
        name, address = self.offset("JVMFlag", "_name"), self.offset("JVMFlag", "_addr")
        if not stride:
            raise CannotRead("a JVMFlag has no bytes")
        for flag in range(flags, flags + stride * min(count, _ENTRIES_MAX), stride):
            yield memory.string(memory.number(flag + name)), memory.number(flag + address)


@contextmanager
def open_hotspot(access: Access) -> Iterator[tuple[HotSpot, Memory]]:
    """Opens the JVM that runs in a process.

    Raises:
        CannotRead: it is no HotSpot, or its memory may not be read.
        QjouleError: its library cannot be read.
    """
    library = mapped_files(access.proc(ProcFile.MAPS), "libjvm.so")
    if not library:
        raise CannotRead("no libjvm.so is mapped: no HotSpot, or only root may look")
    descriptor = access.memory()
    try:
        memory = Memory(descriptor)
        executable = open_executable(access.mapped(library[0].base, library[0].end))
        yield HotSpot(memory, executable, library[0].base), memory
    finally:
        os.close(descriptor)
