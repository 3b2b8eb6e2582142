# SPDX-License-Identifier: Apache-2.0
"""Reads the symbols of an ELF file, and its initialised data as loaded before the program runs.

Pointers in the data of a position-independent executable are in its relocations, not in the data
(System V ABI, AMD64 supplement, "Relocation": R_X86_64_RELATIVE).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.errors import QjouleError
from qjoule.servers.elf_file import ElfFile

#: Elf64_Sym (System V ABI, "Symbol Table").
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
OBJECT, FUNCTION, THREAD_LOCAL = 1, 2, 6  #: STT_OBJECT, STT_FUNC, STT_TLS
_TABLES_BYTES_MAX = 160 << 20  #: most bytes of a file's symbols and their names
#: Most occurrences of a name in a string table. A linker leaves one, and each costs a search.
_OCCURRENCES_MAX = 1000


@dataclass(frozen=True)
class SymbolTable:
    name: str
    strings: bytes
    symbols: npt.NDArray[np.void]  #: sorted by name

    @property
    def size(self) -> int:
        return len(self.strings) + self.symbols.nbytes

    def at(self, position: int, kind: int = FUNCTION) -> npt.NDArray[np.void]:
        """Returns defined functions whose name begins at this position of the string table."""
        names = self.symbols["name"]
        first, end = np.searchsorted(names, position), np.searchsorted(names, position, "right")
        candidates: npt.NDArray[np.void] = self.symbols[first : min(end, first + _OCCURRENCES_MAX)]
        defined = (candidates["section"] != 0) & (candidates["value"] != 0)
        chosen: npt.NDArray[np.void] = candidates[defined & ((candidates["info"] & 0xF) == kind)]
        return chosen


def symbol_tables(elf: ElfFile) -> Iterator[SymbolTable]:
    """Yields the symbol tables: `.dynsym`, `.symtab`, and that of `.gnu_debugdata`. Too large ones
    are skipped."""
    bytes_left = _TABLES_BYTES_MAX
    for name in (".dynsym", ".symtab"):
        if table := _table(elf, name, bytes_left):
            bytes_left -= table.size
            yield table
    inner = elf.debug_data()
    if inner is not None and (table := _table(inner, ".symtab", bytes_left)):
        yield SymbolTable(".gnu_debugdata", table.strings, table.symbols)


def _table(elf: ElfFile, name: str, most: int) -> SymbolTable | None:
    section = elf.section(name)
    if section is None or not section.is_in_file:
        return None
    names = elf.linked(section)
    if section.size + names.size > most:
        return None
    content, strings = elf.content(section), elf.content(names)
    whole = len(content) - len(content) % _SYMBOL.itemsize
    symbols = np.frombuffer(content[:whole], dtype=_SYMBOL)
    # Sorted once, each search takes a few steps, however often a name occurs.
    return SymbolTable(name, strings, symbols[np.argsort(symbols["name"], kind="stable")])


def occurrences(strings: bytes, wanted: bytes) -> Iterator[int]:
    """Yields the positions of `wanted`. Refuses a table full of it, which no linker makes.

    Raises:
        QjouleError: it occurs too often.
    """
    position = strings.find(wanted)
    for _ in range(_OCCURRENCES_MAX):
        if position < 0:
            return
        yield position
        position = strings.find(wanted, position + 1)
    shown = wanted.rstrip(b"\0").decode(errors="replace")
    raise QjouleError(f"the executable has {shown} more than {_OCCURRENCES_MAX} times")


_RELOCATION = np.dtype([("at", "<u8"), ("info", "<u8"), ("addend", "<u8")])
_RELATIVE = {"x64": 8, "AArch64": 1027}
_SECTIONS = (".data.rel.ro", ".data.rel.ro.local", ".data")
_OF_FIXED = (".rodata",)  #: constants with pointers, in files that need no relocation
_SECTION_BYTES_MAX = 32 << 20
_WORD = 8
_PLACES_MAX = 64

Words = npt.NDArray[np.uint64]


class InitialData:
    """The 8-byte words of a file's data sections, with the pointers at their linked addresses.

    The constructor raises the errors in `elf_file.MALFORMED`.
    """

    def __init__(self, elf: ElfFile) -> None:
        self._blocks: list[tuple[int, Words]] = []  #: address, content
        for name in (*_SECTIONS, *(_OF_FIXED if elf.is_fixed else ())):
            section = elf.section(name)
            if section is not None and section.is_in_file:
                content = elf.content(section, _SECTION_BYTES_MAX)
                whole = len(content) - len(content) % _WORD
                self._blocks.append((section.vaddr, np.frombuffer(content[:whole], "<u8").copy()))
        relocations, relative = elf.section(".rela.dyn"), _RELATIVE.get(elf.machine)
        if relocations is not None and relative is not None and not elf.is_fixed:
            content = elf.content(relocations)
            whole = len(content) - len(content) % _RELOCATION.itemsize
            self._relocate(np.frombuffer(content[:whole], _RELOCATION), relative)

    def places(self, value: int) -> list[int]:
        """Returns the addresses of words with this value, the first few of each section."""
        return [
            begins + int(at) * _WORD
            for begins, words in self._blocks
            for at in np.flatnonzero(words == value)[:_PLACES_MAX]
        ]

    def words(self, address: int, count: int) -> Words:
        """Returns at most `count` words from this address on; none if it is in no data section."""
        for begins, words in self._blocks:
            first, odd = divmod(address - begins, _WORD)
            if not odd and 0 <= first < len(words):
                return words[first : first + count]
        return np.empty(0, np.uint64)

    def _relocate(self, relocations: npt.NDArray[np.void], relative: int) -> None:
        chosen = relocations[(relocations["info"] & 0xFFFFFFFF) == relative]
        for begins, words in self._blocks:
            at = chosen["at"] - np.uint64(begins)
            inside = (chosen["at"] >= begins) & (at < words.nbytes) & (at % _WORD == 0)
            words[at[inside] // _WORD] = chosen["addend"][inside]
