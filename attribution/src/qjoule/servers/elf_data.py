# SPDX-License-Identifier: Apache-2.0
"""The initialised data of an executable as it is in memory before the program runs.

Pointers in the data of a position-independent executable are in its relocations, not in the data
(System V ABI, AMD64 supplement, "Relocation": R_X86_64_RELATIVE).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qjoule.servers.elf_file import ElfFile

_RELOCATION = np.dtype([("at", "<u8"), ("info", "<u8"), ("addend", "<u8")])
_RELATIVE = {"x64": 8, "AArch64": 1027}
_SECTIONS = (".data.rel.ro", ".data.rel.ro.local", ".data")
_OF_FIXED = (".rodata",)  #: constants with pointers, where these need no relocation
_SECTION_BYTES_MAX = 32 << 20
_WORD = 8
_PLACES_MAX = 64

Words = npt.NDArray[np.uint64]


class InitialData:
    """The words of 8 bytes of a file's data sections, with the pointers at their linked addresses.

    Making one raises what `elf_file.MALFORMED` lists.
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
        """The addresses of the words with this value, the first few of each section."""
        return [
            begins + int(at) * _WORD
            for begins, words in self._blocks
            for at in np.flatnonzero(words == value)[:_PLACES_MAX]
        ]

    def words(self, address: int, count: int) -> Words:
        """At most so many words from this address on; none if it is in no data section."""
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
