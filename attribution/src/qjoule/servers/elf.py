"""Function symbols of an executable, where they are in the file, and its USDT notes.

Big servers carry hundreds of thousands of symbols, so symbol tables are read whole into numpy
and searched by name, instead of being walked symbol by symbol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from qjoule.errors import QjouleError
from qjoule.servers.elf_file import MALFORMED, ElfFile, Segment

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
_STT_OBJECT, _STT_FUNC = 1, 2
_CONSTANTS_BYTES_MAX = 128 << 20


class NotAnExecutable(QjouleError):
    """The file is not an ELF executable that qjoule can read."""


@dataclass(frozen=True)
class Symbol:
    name: str
    vaddr: int
    size: int
    table: str  #: the table it was found in


@dataclass(frozen=True)
class UsdtNote:
    """A static probe: where, and whether a counter must be raised to arm it."""

    provider: str
    name: str
    vaddr: int
    semaphore: int
    arguments: str


@dataclass(frozen=True)
class _Table:
    name: str
    strings: bytes
    symbols: npt.NDArray[np.void]

    def at(self, position: int, kind: int = _STT_FUNC) -> npt.NDArray[np.void]:
        """Defined functions whose name begins at this position of the string table."""
        found: npt.NDArray[np.void] = self.symbols[self.symbols["name"] == position]
        defined = (found["section"] != 0) & (found["value"] != 0)
        chosen: npt.NDArray[np.void] = found[defined & ((found["info"] & 0xF) == kind)]
        return chosen


class Executable:
    """The parts of an ELF file that probes need. Build it with `open_executable`."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        elf = ElfFile(stream)
        self.path = path
        self.machine = elf.machine
        if not elf.is_64_bit_little_endian:
            raise NotAnExecutable(f"{path}: only 64-bit little-endian executables can be traced")
        self.is_fixed = elf.is_fixed  #: its addresses do not move when it starts
        self.build_id = _build_id(elf)
        self._segments = tuple(elf.segments())
        self._tables = tuple(_tables(elf))
        self.usdt = tuple(_usdt(elf))
        self._constants = elf.section(".rodata")

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(table.name for table in self._tables)

    def functions(self, name: str) -> tuple[Symbol, ...]:
        """Functions of exactly this name, one per address, in the order of the tables."""
        found: dict[int, Symbol] = {}
        for table in self._tables:
            # String tables share tails, so the name may be the end of a longer string.
            for position in _occurrences(table.strings, name.encode() + b"\0"):
                for symbol in table.at(position):
                    vaddr, size = int(symbol["value"]), int(symbol["size"])
                    found.setdefault(vaddr, Symbol(name, vaddr, size, table.name))
        return tuple(found.values())

    def variable(self, name: str) -> Symbol | None:
        """The global variable of exactly this name."""
        for table in self._tables:
            for position in _occurrences(table.strings, name.encode() + b"\0"):
                for symbol in table.at(position, _STT_OBJECT):
                    return Symbol(name, int(symbol["value"]), int(symbol["size"]), table.name)
        return None

    def names_with_prefix(self, prefix: str) -> tuple[str, ...]:
        """Function names that begin so: a function's clones, a signature's relatives."""
        names: dict[str, None] = {}
        for table in self._tables:
            for position in _occurrences(table.strings, prefix.encode()):
                if len(table.at(position)):
                    end = table.strings.find(b"\0", position)
                    names[table.strings[position:end].decode(errors="replace")] = None
        return tuple(names)

    def file_offset(self, vaddr: int) -> int | None:
        """Where an executable address is in the file; None when no segment holds it."""
        for segment in self._segments:
            if segment.executable and 0 <= vaddr - segment.vaddr < segment.size:
                return vaddr - segment.vaddr + segment.offset
        return None

    @property
    def data_vaddr(self) -> int:
        """Where the last segment begins: the kernel's `start_data` (fs/binfmt_elf.c)."""
        return self._data.vaddr

    @property
    def data_size(self) -> int:
        """Bytes of that segment in memory."""
        return self._data.memory

    @property
    def _data(self) -> Segment:
        none = Segment(0, 0, 0, 0, executable=False)
        return max(self._segments, key=lambda segment: segment.vaddr, default=none)

    def constants(self) -> bytes:
        """The section of constant data, with the strings; at most its first 128 MiB."""
        if self._constants is None:
            return b""
        return self.read(self._constants.offset, min(self._constants.size, _CONSTANTS_BYTES_MAX))

    def constant(self, text: bytes) -> int | None:
        """The address of a string constant that is exactly this text."""
        position = self.constants().find(b"\0" + text + b"\0")
        return self._constants.vaddr + position + 1 if self._constants and position >= 0 else None

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer at its end."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(offset)
                return stream.read(size)
        except OSError as error:
            raise QjouleError(f"cannot read {self.path}: {error.strerror}") from error


def open_executable(path: Path) -> Executable:
    """Read an executable; the same file is read once.

    Raises:
        NotAnExecutable: it is no ELF file, or a damaged one.
        QjouleError: it cannot be opened.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise QjouleError(f"cannot open {path}: {error.strerror}") from error
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return _read_executable(path, key)


@lru_cache(maxsize=8)
def _read_executable(path: Path, _key: tuple[int, ...]) -> Executable:
    try:
        with path.open("rb") as stream:
            return Executable(path, stream)
    except OSError as error:
        raise QjouleError(f"cannot open {path}: {error.strerror}") from error
    except MALFORMED as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise NotAnExecutable(f"{path} is not a readable ELF executable: {reason}") from error


def _occurrences(strings: bytes, wanted: bytes) -> Iterator[int]:
    position = strings.find(wanted)
    while position >= 0:
        yield position
        position = strings.find(wanted, position + 1)


def _build_id(elf: ElfFile) -> str:
    for note in elf.notes(".note.gnu.build-id"):
        if note["n_type"] == "NT_GNU_BUILD_ID":
            return str(note["n_desc"])
    return ""


def _tables(elf: ElfFile) -> Iterator[_Table]:
    """Symbol tables, the one that every executable has first."""
    for name in (".dynsym", ".symtab"):
        if table := _table(elf, name):
            yield table
    inner = elf.debug_data()
    if inner is not None and (table := _table(inner, ".symtab")):
        yield _Table(".gnu_debugdata", table.strings, table.symbols)


def _table(elf: ElfFile, name: str) -> _Table | None:
    section = elf.section(name)
    if section is None or not section.is_in_file:
        return None
    content, strings = elf.content(section), elf.content(elf.linked(section))
    whole = len(content) - len(content) % _SYMBOL.itemsize
    return _Table(name, strings, np.frombuffer(content[:whole], dtype=_SYMBOL))


def _usdt(elf: ElfFile) -> Iterator[UsdtNote]:
    """Static probes (SystemTap wiki, "UserSpaceProbeImplementation")."""
    base = elf.section(".stapsdt.base")
    for note in elf.notes(".note.stapsdt"):
        content = note["n_desc"]
        raw = content.encode("latin-1") if isinstance(content, str) else bytes(content)
        pc, note_base, semaphore = struct.unpack_from("<QQQ", raw)
        provider, name, arguments = raw[24:].split(b"\0")[:3]
        # A prelinked file moved after the notes were written: its base section moved with it.
        shift = base.vaddr - note_base if base is not None else 0
        yield UsdtNote(
            provider.decode(errors="replace"),
            name.decode(errors="replace"),
            pc + shift,
            semaphore + shift if semaphore else 0,
            arguments.decode(errors="replace"),
        )
