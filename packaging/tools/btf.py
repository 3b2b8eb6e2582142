# SPDX-License-Identifier: Apache-2.0
"""Reads BTF, the kernel's type information, from a file of its own or from an ELF object.

Layout: https://docs.kernel.org/bpf/btf.html and include/uapi/linux/btf.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC = 0xEB9F
INT, PTR, ARRAY, STRUCT, UNION, ENUM = 1, 2, 3, 4, 5, 6
TYPEDEF, VOLATILE, CONST, RESTRICT = 8, 9, 10, 11
FUNC_PROTO, VAR, DATASEC, DECL_TAG, TYPE_TAG, ENUM64 = 13, 14, 15, 17, 18, 19
_MODIFIERS = frozenset({TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG})
COMPOSITE = frozenset({STRUCT, UNION})
#: Bytes that follow a type of a kind: so many once, and so many for each of its `vlen`.
_FOLLOWING = {INT: (4, 0), ARRAY: (12, 0), VAR: (4, 0), DECL_TAG: (4, 0)} | {
    STRUCT: (0, 12),
    UNION: (0, 12),
    ENUM: (0, 8),
    FUNC_PROTO: (0, 8),
    DATASEC: (0, 12),
    ENUM64: (0, 12),
}
#: BPF_CORE_FIELD_*: relocations of a field, not of a type or an enumerator.
_FIELD_KINDS = range(6)


class BadBtf(Exception):
    """The file holds no BTF, or it is damaged."""


@dataclass(frozen=True)
class Type:
    kind: int
    name: str
    #: Bytes of an integer, enumeration or composite; else the type that is referred to.
    size_or_type: int
    #: (name, type) of each member of a composite; (number of elements, type) of an array.
    members: tuple[tuple[str, int], ...] = ()
    elements: int = 0


@dataclass(frozen=True)
class Access:
    """A field that a program reads: `path` are member names from `root`, a composite's name."""

    program: str
    root: str
    path: tuple[str, ...]
    type_id: int


class Btf:
    """Types by their number; 0 is void."""

    def __init__(self, data: bytes) -> None:
        """Raises BadBtf."""
        try:
            magic, _, _, size = struct.unpack_from("<HBBI", data)
            if magic != _MAGIC:
                raise BadBtf("no BTF (or of the other byte order)")
            types_at, types_bytes, strings_at, strings_bytes = struct.unpack_from("<4I", data, 8)
            self._strings = data[size + strings_at : size + strings_at + strings_bytes]
            self.types = [Type(0, "void", 0)]
            self._read(data[size + types_at : size + types_at + types_bytes])
        except (struct.error, IndexError, ValueError, KeyError) as error:
            raise BadBtf(f"damaged BTF: {error}") from None
        self.composites = {
            type_.name: type_
            for type_ in reversed(self.types)
            if type_.kind in COMPOSITE and type_.name
        }

    def string(self, offset: int) -> str:
        end = self._strings.index(b"\0", offset)
        return self._strings[offset:end].decode("utf-8", "replace")

    def _read(self, data: bytes) -> None:
        offset = 0
        while offset < len(data):
            name, info, size_or_type = struct.unpack_from("<III", data, offset)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            offset += 12
            fixed, per_member = _FOLLOWING.get(kind, (0, 0))
            members: tuple[tuple[str, int], ...] = ()
            elements = 0
            if kind in COMPOSITE:
                rows = (struct.unpack_from("<III", data, offset + 12 * i) for i in range(count))
                members = tuple((self.string(row[0]), row[1]) for row in rows)
            elif kind == ARRAY:
                size_or_type, _, elements = struct.unpack_from("<III", data, offset)
            self.types.append(Type(kind, self.string(name), size_or_type, members, elements))
            offset += fixed + per_member * count

    def plain(self, type_id: int) -> Type:
        """The type without its typedefs and qualifiers."""
        type_ = self.types[type_id]
        while type_.kind in _MODIFIERS:
            type_ = self.types[type_.size_or_type]
        return type_

    def field(self, root: Type, name: str) -> int | None:
        """The type of a composite's field, which may be in an anonymous member; None: no such."""
        for member, type_id in root.members:
            if member == name:
                return type_id
            inner = self.plain(type_id)
            if not member and inner.kind in COMPOSITE:
                inner_field = self.field(inner, name)
                if inner_field is not None:
                    return inner_field
        return None

    def bytes_of(self, type_id: int) -> int | None:
        """The size of an integer, a pointer or an array of these; None for all else."""
        type_ = self.plain(type_id)
        if type_.kind in (INT, ENUM, ENUM64):
            return type_.size_or_type
        if type_.kind == PTR:
            return 8
        if type_.kind == ARRAY:
            element_bytes = self.bytes_of(type_.size_or_type)
            return None if element_bytes is None else element_bytes * type_.elements
        return None


def read(path: Path) -> Btf:
    """The BTF of a file: raw, as in /sys/kernel/btf, or the section of an object. Raises BadBtf."""
    data = path.read_bytes()
    return Btf(section(data, ".BTF") if data.startswith(b"\x7fELF") else data)


def section(elf: bytes, name: str) -> bytes:
    """A section of a 64-bit little-endian ELF object. Raises BadBtf."""
    try:
        (offset,) = struct.unpack_from("<Q", elf, 0x28)
        entry_bytes, count, names = struct.unpack_from("<HHH", elf, 0x3A)
        heads = [struct.unpack_from("<IIQQQQ", elf, offset + entry_bytes * i) for i in range(count)]
        names_at = heads[names][4]
        for head in heads:
            start = names_at + head[0]
            if elf[start : elf.index(b"\0", start)].decode("ascii", "replace") == name:
                return elf[head[4] : head[4] + head[5]]
    except (struct.error, IndexError, ValueError) as error:
        raise BadBtf(f"damaged ELF object: {error}") from None
    raise BadBtf(f"no section {name}")


def accesses(path: Path) -> tuple[Btf, list[Access]]:
    """The types of a BPF object, and the fields that its programs look up. Raises BadBtf."""
    elf = path.read_bytes()
    types, extension = Btf(section(elf, ".BTF")), section(elf, ".BTF.ext")
    fields = []
    try:
        (size,) = struct.unpack_from("<I", extension, 4)
        offset, length = struct.unpack_from("<II", extension, 24)
        offset, end = size + offset + 4, size + offset + length
        while offset < end:
            program, count = struct.unpack_from("<II", extension, offset)
            offset += 8
            for _ in range(count):
                _, type_id, text, kind = struct.unpack_from("<IIII", extension, offset)
                offset += 16
                if kind in _FIELD_KINDS:
                    fields.append(
                        _access(types, types.string(program), type_id, types.string(text))
                    )
    except (struct.error, IndexError, ValueError) as error:
        raise BadBtf(f"damaged relocations: {error}") from None
    return types, fields


def _access(types: Btf, program: str, type_id: int, text: str) -> Access:
    """Turns `0:3:1` into names: the first number is of the pointer, the others of members."""
    root = types.plain(type_id)
    path: list[str] = []
    for index in map(int, text.split(":")[1:]):
        type_ = types.plain(type_id)
        if type_.kind == ARRAY:
            type_id = type_.size_or_type
            continue
        name, type_id = type_.members[index]
        path.append(name)
    # A relocation knows a type's flavours by what follows three underscores.
    return Access(program, root.name.split("___")[0], tuple(path), type_id)
