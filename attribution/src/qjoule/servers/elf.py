# SPDX-License-Identifier: Apache-2.0
"""Finds function symbols of an executable, and their positions in the file."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.access import FileIdentity, Opened
from qjoule.servers.elf_file import MALFORMED, ElfFile, FileSource, Segment
from qjoule.servers.elf_tables import OBJECT, THREAD_LOCAL, InitialData, occurrences, symbol_tables

_CONSTANTS_BYTES_MAX = 128 << 20
_READ_BYTES_MAX = 1 << 20  #: most bytes of one read
_NAME_BYTES_MAX = 1024
_CACHED = 8  #: executables kept open, for several servers that run one file
_NT_GNU_BUILD_ID, _BUILD_ID_BYTES_MAX = 3, 64


class NotAnExecutable(QjouleError):
    """The file is not an ELF executable that qjoule can read."""


@dataclass(frozen=True)
class Symbol:
    name: str
    vaddr: int
    size: int
    table: str  #: the table it was found in


class Executable:
    """The parts of an ELF file that probes need. Build it with `open_executable`."""

    def __init__(self, file: Opened) -> None:
        """Takes ownership of the descriptor, even if it raises one of `MALFORMED`."""
        self._descriptor = file.fd
        weakref.finalize(self, _close, file.fd, os.getpid())
        self.path = file.path
        self.identity = file.identity
        self._elf = elf = ElfFile(FileSource(file.fd))
        self.machine = elf.machine
        if not elf.is_64_bit_little_endian:
            raise NotAnExecutable(
                f"{file.path}: only 64-bit little-endian executables can be traced"
            )
        self.is_fixed = elf.is_fixed  #: always loaded at the same addresses
        self.build_id = build_id_of(elf)
        self._segments = tuple(elf.segments())
        self._thread_bytes = elf.thread_bytes()
        self._tables = tuple(symbol_tables(elf))
        self._constants = elf.section(".rodata")

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(table.name for table in self._tables)

    def functions(self, name: str) -> tuple[Symbol, ...]:
        """Returns functions of exactly this name, one per address, in the order of the tables."""
        by_address: dict[int, Symbol] = {}
        for table in self._tables:
            # String tables share tails, so the name may be the end of a longer string.
            for position in occurrences(table.strings, name.encode() + b"\0"):
                for symbol in table.at(position):
                    vaddr, size = int(symbol["value"]), int(symbol["size"])
                    by_address.setdefault(vaddr, Symbol(name, vaddr, size, table.name))
        return tuple(by_address.values())

    def variable(self, name: str) -> Symbol | None:
        """Returns the global variable of exactly this name."""
        for table in self._tables:
            for position in occurrences(table.strings, name.encode() + b"\0"):
                for symbol in table.at(position, OBJECT):
                    return Symbol(name, int(symbol["value"]), int(symbol["size"]), table.name)
        return None

    def below_thread_pointer(self, name: str) -> int:
        """Returns how far below the thread pointer the thread-local variable of this name is; 0: it
        has no symbol."""
        for table in self._tables:
            for position in occurrences(table.strings, name.encode() + b"\0"):
                for symbol in table.at(position, THREAD_LOCAL):
                    return max(self._thread_bytes - int(symbol["value"]), 0)
        return 0

    def names_with_prefix(self, prefix: str) -> tuple[str, ...]:
        """Returns function names with this prefix: clones, or variants of a signature."""
        names: dict[str, None] = {}
        for table in self._tables:
            for position in occurrences(table.strings, prefix.encode()):
                if len(table.at(position)):
                    text = table.strings[position : position + _NAME_BYTES_MAX]
                    names[text.partition(b"\0")[0].decode(errors="replace")] = None
        return tuple(names)

    def file_offset(self, vaddr: int) -> int | None:
        """Returns the file offset of an executable address; None if no segment contains it."""
        for segment in self._segments:
            if segment.executable and 0 <= vaddr - segment.vaddr < segment.size:
                return vaddr - segment.vaddr + segment.offset
        return None

    @property
    def code_vaddr(self) -> int:
        """Start address of the first code segment: the kernel's `start_code` (fs/binfmt_elf.c)."""
        return min((segment.vaddr for segment in self._segments if segment.executable), default=0)

    @property
    def data_vaddr(self) -> int:
        """Start address of the last segment: the kernel's `start_data` (fs/binfmt_elf.c)."""
        return self._data.vaddr

    @property
    def data_size(self) -> int:
        """Size of the last segment in memory."""
        return self._data.memory

    @property
    def _data(self) -> Segment:
        none = Segment(0, 0, 0, 0, executable=False)
        return max(self._segments, key=lambda segment: segment.vaddr, default=none)

    def constants(self) -> bytes:
        """Returns the section of constant data, with the strings; at most its first 128 MiB."""
        if self._constants is None or not self._constants.is_in_file:
            return b""
        size = min(self._constants.size, _CONSTANTS_BYTES_MAX)
        return self._pread(self._constants.offset, size)

    def constant(self, text: bytes) -> int | None:
        """Returns the address of a string constant that is exactly this text."""
        if self._constants is None:
            return None
        whole = self.constants()
        # Search without the zeros at both ends: padding is full of zeros.
        for position in occurrences(whole, text):
            ends = position + len(text)
            if whole[max(position - 1, 0) : position] == whole[ends : ends + 1] == b"\0":
                return self._constants.vaddr + position
        return None

    def constants_with(self, text: bytes) -> tuple[int, ...]:
        """Returns the addresses at which this text ends a string constant."""
        if self._constants is None:
            return ()
        begins = self._constants.vaddr
        return tuple(begins + at for at in occurrences(self._constants_once, text + b"\0"))

    def constant_at(self, vaddr: int, most: int) -> bytes | None:
        """Returns the string constant at this address, without its zero; None if it is longer than
        `most` bytes."""
        if self._constants is None or not vaddr - self._constants.vaddr >= 0:
            return None
        at = vaddr - self._constants.vaddr
        text, zero, _ = self._constants_once[at : at + most + 1].partition(b"\0")
        return text if zero else None

    @cached_property
    def _constants_once(self) -> bytes:
        return self.constants()

    def initial_data(self) -> InitialData:
        """Returns the data sections.

        Raises:
            QjouleError: they are damaged.
        """
        try:
            return InitialData(self._elf)
        except MALFORMED as error:
            raise QjouleError(f"the data of {self.path} cannot be read: {error}") from None

    def read(self, offset: int, size: int) -> bytes:
        """Reads from the file; returns fewer bytes at its end.

        Raises:
            QjouleError: the file cannot be read, or `size` is too large.
        """
        if size > _READ_BYTES_MAX:
            raise QjouleError(f"cannot read {size} bytes of {self.path} at a time")
        return self._pread(offset, size)

    def _pread(self, offset: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, offset)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "no such offset"
            raise QjouleError(f"cannot read {self.path}: {why}") from None


#: The process is part of the key: after a fork, these descriptors may be closed or reused.
_cache: OrderedDict[tuple[int, FileIdentity], Executable] = OrderedDict()


def _close(descriptor: int, owner: int) -> None:
    if os.getpid() == owner:
        os.close(descriptor)


def open_executable(file: Opened | Path) -> Executable:
    """Opens an executable; the same file is read only once.

    Args:
        file: a candidate's, which is closed in any case; a path only for files of our own.

    Raises:
        NotAnExecutable: it is no ELF file, or a damaged one.
        QjouleError: it cannot be opened.
    """
    if isinstance(file, Path):
        from qjoule.servers.direct_access import open_regular  # noqa: PLC0415 - imports us not

        file = open_regular(file, str(file))
    key = os.getpid(), file.identity
    if opened := _cache.get(key):
        _cache.move_to_end(key)
        os.close(file.fd)
        return opened
    try:
        executable = Executable(file)
    except OSError as error:
        raise QjouleError(f"cannot read {file.path}: {error.strerror}") from error
    except MALFORMED as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise NotAnExecutable(f"{file.path} is not a readable ELF executable: {reason}") from None
    _cache[key] = executable
    if len(_cache) > _CACHED:
        _cache.popitem(last=False)
    return executable


def build_id_of(elf: ElfFile) -> str:
    """Returns the linker's build id; empty if there is none."""
    for note in elf.notes(".note.gnu.build-id"):
        if note.type == _NT_GNU_BUILD_ID and note.name == b"GNU\0":
            return note.content[:_BUILD_ID_BYTES_MAX].hex()
    return ""
