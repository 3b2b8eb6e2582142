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
            one.name: one for one in reversed(self.types) if one.kind in COMPOSITE and one.name
        }

    def string(self, offset: int) -> str:
        end = self._strings.index(b"\0", offset)
        return self._strings[offset:end].decode("utf-8", "replace")

    def _read(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            name, info, size_or_type = struct.unpack_from("<III", data, at)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            at += 12
            once, each = _FOLLOWING.get(kind, (0, 0))
            members: tuple[tuple[str, int], ...] = ()
            elements = 0
            if kind in COMPOSITE:
                rows = (struct.unpack_from("<III", data, at + 12 * i) for i in range(count))
                members = tuple((self.string(row[0]), row[1]) for row in rows)
            elif kind == ARRAY:
                size_or_type, _, elements = struct.unpack_from("<III", data, at)
            self.types.append(Type(kind, self.string(name), size_or_type, members, elements))
            at += once + each * count

    def plain(self, type_id: int) -> Type:
        """The type without its typedefs and qualifiers."""
        one = self.types[type_id]
        while one.kind in _MODIFIERS:
            one = self.types[one.size_or_type]
        return one

    def field(self, root: Type, name: str) -> int | None:
        """The type of a composite's field, which may be in an anonymous member; None: no such."""
        for member, type_id in root.members:
            if member == name:
                return type_id
            inner = self.plain(type_id)
            if not member and inner.kind in COMPOSITE:
                found = self.field(inner, name)
                if found is not None:
                    return found
        return None

    def bytes_of(self, type_id: int) -> int | None:
        """The size of an integer, a pointer or an array of these; None for all else."""
        one = self.plain(type_id)
        if one.kind in (INT, ENUM, ENUM64):
            return one.size_or_type
        if one.kind == PTR:
            return 8
        if one.kind == ARRAY:
            each = self.bytes_of(one.size_or_type)
            return None if each is None else each * one.elements
        return None


def read(path: Path) -> Btf:
    """The BTF of a file: raw, as in /sys/kernel/btf, or the section of an object. Raises BadBtf."""
    data = path.read_bytes()
    return Btf(section(data, ".BTF") if data.startswith(b"\x7fELF") else data)


def section(elf: bytes, wanted: str) -> bytes:
    """A section of a 64-bit little-endian ELF object. Raises BadBtf."""
    try:
        (at,) = struct.unpack_from("<Q", elf, 0x28)
        each, count, names = struct.unpack_from("<HHH", elf, 0x3A)
        heads = [struct.unpack_from("<IIQQQQ", elf, at + each * i) for i in range(count)]
        names_at = heads[names][4]
        for head in heads:
            start = names_at + head[0]
            if elf[start : elf.index(b"\0", start)].decode("ascii", "replace") == wanted:
                return elf[head[4] : head[4] + head[5]]
    except (struct.error, IndexError, ValueError) as error:
        raise BadBtf(f"damaged ELF object: {error}") from None
    raise BadBtf(f"no section {wanted}")


def accesses(path: Path) -> tuple[Btf, list[Access]]:
    """The types of a BPF object, and the fields that its programs look up. Raises BadBtf."""
    elf = path.read_bytes()
    own, more = Btf(section(elf, ".BTF")), section(elf, ".BTF.ext")
    found = []
    try:
        (size,) = struct.unpack_from("<I", more, 4)
        at, length = struct.unpack_from("<II", more, 24)
        at, end = size + at + 4, size + at + length
        while at < end:
            program, count = struct.unpack_from("<II", more, at)
            at += 8
            for _ in range(count):
                _, type_id, text, kind = struct.unpack_from("<IIII", more, at)
                at += 16
                if kind in _FIELD_KINDS:
                    found.append(_access(own, own.string(program), type_id, own.string(text)))
    except (struct.error, IndexError, ValueError) as error:
        raise BadBtf(f"damaged relocations: {error}") from None
    return own, found


def _access(own: Btf, program: str, type_id: int, text: str) -> Access:
    """Turns `0:3:1` into names: the first number is of the pointer, the others of members."""
    root = own.plain(type_id)
    path: list[str] = []
    for index in map(int, text.split(":")[1:]):
        one = own.plain(type_id)
        if one.kind == ARRAY:
            type_id = one.size_or_type
            continue
        name, type_id = one.members[index]
        path.append(name)
    # A relocation knows a type's flavours by what follows three underscores.
    return Access(program, root.name.split("___")[0], tuple(path), type_id)
