"""Function symbols of an executable, where they are in the file, and its USDT notes.

Big servers carry hundreds of thousands of symbols, so symbol tables are read whole into numpy
and searched by name, instead of being walked symbol by symbol.
"""

from __future__ import annotations

import io
import lzma
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from qjoule.errors import QjouleError

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
_TABLE_BYTES_MAX = 1 << 30
_CONSTANTS_BYTES_MAX = 128 << 20
_DEBUGDATA_BYTES_MAX = 256 << 20
#: What pyelftools lets through on files that are not what they say.
_MALFORMED = (
    ELFError,
    ConstructError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    AssertionError,
    struct.error,
    OverflowError,
    MemoryError,
    RecursionError,
    EOFError,
    lzma.LZMAError,
)


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
class _Segment:
    vaddr: int
    offset: int
    size: int
    memory: int  #: its size there, with what begins as zeros
    executable: bool


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
        elf = ELFFile(stream)
        self.path = path
        self.machine: str = elf.get_machine_arch()
        if elf.elfclass != 64 or not elf.little_endian:
            raise NotAnExecutable(f"{path}: only 64-bit little-endian executables can be traced")
        self.is_fixed = elf["e_type"] == "ET_EXEC"  #: its addresses do not move when it starts
        self.build_id = _build_id(elf)
        self._segments = tuple(_load_segments(elf))
        self._tables = tuple(_tables(elf, stream))
        self.usdt = tuple(_usdt(elf))
        strings = elf.get_section_by_name(".rodata")
        self._strings_at = (strings["sh_offset"], strings["sh_size"]) if strings else (0, 0)
        self._strings_vaddr: int = strings["sh_addr"] if strings else 0

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
    def _data(self) -> _Segment:
        none = _Segment(0, 0, 0, 0, executable=False)
        return max(self._segments, key=lambda segment: segment.vaddr, default=none)

    def constants(self) -> bytes:
        """The section of constant data, with the strings; at most its first 128 MiB."""
        offset, size = self._strings_at
        return self.read(offset, min(size, _CONSTANTS_BYTES_MAX))

    def constant(self, text: bytes) -> int | None:
        """The address of a string constant that is exactly this text."""
        position = self.constants().find(b"\0" + text + b"\0")
        return None if position < 0 else self._strings_vaddr + position + 1

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
    except _MALFORMED as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise NotAnExecutable(f"{path} is not a readable ELF executable: {reason}") from error


def _occurrences(strings: bytes, wanted: bytes) -> Iterator[int]:
    position = strings.find(wanted)
    while position >= 0:
        yield position
        position = strings.find(wanted, position + 1)


def _build_id(elf: Any) -> str:
    for note in _notes(elf, ".note.gnu.build-id"):
        if note["n_type"] == "NT_GNU_BUILD_ID":
            return str(note["n_desc"])
    return ""


def _notes(elf: Any, name: str) -> Iterator[Any]:
    section = elf.get_section_by_name(name)
    if section is not None and hasattr(section, "iter_notes"):
        yield from section.iter_notes()


def _load_segments(elf: Any) -> Iterator[_Segment]:
    for segment in elf.iter_segments("PT_LOAD"):
        header = segment.header
        yield _Segment(
            header["p_vaddr"],
            header["p_offset"],
            header["p_filesz"],
            header["p_memsz"],
            bool(header["p_flags"] & 1),  # PF_X
        )


def _tables(elf: Any, stream: BinaryIO) -> Iterator[_Table]:
    """Symbol tables, the one that every executable has first."""
    for name in (".dynsym", ".symtab"):
        table = _table(elf, stream, name)
        if table is not None:
            yield table
    packed = elf.get_section_by_name(".gnu_debugdata")
    if packed is not None and packed["sh_type"] == "SHT_PROGBITS":
        # MiniDebugInfo: an ELF file of its own, compressed (GDB manual, "Debugging information
        # in a special section"). Its addresses are those of the outer file.
        inner = io.BytesIO(_unpack(_section_bytes(packed, stream)))
        table = _table(ELFFile(inner), inner, ".symtab")
        if table is not None:
            yield _Table(".gnu_debugdata", table.strings, table.symbols)


def _table(elf: Any, stream: BinaryIO, name: str) -> _Table | None:
    section = elf.get_section_by_name(name)
    if section is None or section["sh_type"] == "SHT_NOBITS":
        return None
    content = _section_bytes(section, stream)
    strings = _section_bytes(elf.get_section(section["sh_link"]), stream)
    whole = len(content) - len(content) % _SYMBOL.itemsize
    return _Table(name, strings, np.frombuffer(content[:whole], dtype=_SYMBOL))


def _section_bytes(section: Any, stream: BinaryIO) -> bytes:
    """A section as it is in the file: pyelftools would also inflate it, without a bound."""
    size, offset = section["sh_size"], section["sh_offset"]
    if size > _TABLE_BYTES_MAX:
        raise ValueError(f"section {section.name} of {size} bytes")
    end = stream.seek(0, io.SEEK_END)
    if offset + size > end:
        raise ValueError(f"section {section.name} reaches beyond the end of the file")
    stream.seek(offset)
    return stream.read(size)


def _unpack(packed: bytes) -> bytes:
    inflater = lzma.LZMADecompressor(memlimit=_DEBUGDATA_BYTES_MAX)
    plain = inflater.decompress(packed, max_length=_DEBUGDATA_BYTES_MAX)
    if not inflater.eof:
        raise ValueError("mini debug info is cut off or too large")
    return plain


def _usdt(elf: Any) -> Iterator[UsdtNote]:
    """Static probes (SystemTap wiki, "UserSpaceProbeImplementation")."""
    base = elf.get_section_by_name(".stapsdt.base")
    for note in _notes(elf, ".note.stapsdt"):
        content = note["n_desc"]
        raw = content.encode("latin-1") if isinstance(content, str) else bytes(content)
        pc, note_base, semaphore = struct.unpack_from("<QQQ", raw)
        provider, name, arguments = raw[24:].split(b"\0")[:3]
        # A prelinked file moved after the notes were written: its base section moved with it.
        shift = base["sh_addr"] - note_base if base is not None else 0
        yield UsdtNote(
            provider.decode(errors="replace"),
            name.decode(errors="replace"),
            pc + shift,
            semaphore + shift if semaphore else 0,
            arguments.decode(errors="replace"),
        )
