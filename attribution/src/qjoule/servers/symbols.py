# SPDX-License-Identifier: Apache-2.0
"""Names the functions at addresses of a file, after a recording or for the live view.

A file gives names only if it has the build id of the traced file: a file that was replaced since
would give wrong names. Names come from its symbol tables, also compressed ones (`.gnu_debugdata`),
and from a debug file of that build id. Files and names are untrusted.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qjoule.errors import QjouleError
from qjoule.servers.access import Opened
from qjoule.servers.direct_access import open_regular
from qjoule.servers.elf import build_id_of
from qjoule.servers.elf_file import MALFORMED, ElfFile, FileSource, MemorySource
from qjoule.servers.elf_tables import FUNCTION, symbol_tables
from qjoule.servers.stack_tables import TABLES, VDSO, own_vdso
from qjoule.shapes.safe_text import sanitise

DEBUG_FILES = Path("/usr/lib/debug/.build-id")
_BUILD_ID = re.compile(r"[0-9a-f]{8,128}")
_NAME_BYTES_MAX = 4096
#: Longest name given to the C++ library, which recurses with the depth of a name.
_MANGLED_MAX = 1024
_INDIRECT_FUNCTION = 10  #: STT_GNU_IFUNC: chooses one of several functions
SHOWN_MAX = 200  #: characters of a name
_NAMES_MAX = 1 << 17  #: most cached names: a live view runs without end
#: Version, and encodings: relative to the place, unsigned, relative to the index; 4 bytes each.
_USUAL_INDEX, _INDEX_HEAD = b"\x01\x1b\x03\x3b", 12
_ENTRY_SIZE = 12  #: offset in an entry of its function's size

Numbers = npt.NDArray[np.uint64]
#: Opens a file by its path; the second argument is for messages. Raises `QjouleError`.
OpenFile = Callable[[Path, str], Opened]
Unnamed = Callable[[int, str], object]


def files_read(path: str, build_id: str, debug_files: Path = DEBUG_FILES) -> tuple[Path, ...]:
    """Returns the files that may name the functions of this module."""
    if not _BUILD_ID.fullmatch(build_id):
        return ()
    return debug_files / build_id[:2] / f"{build_id[2:]}.debug", Path(path)


@dataclass(frozen=True)
class FunctionTable:
    """Functions of one symbol table: addresses, sizes, and positions of names in `strings`."""

    begins: Numbers
    sizes: Numbers
    names: Numbers
    strings: bytes


def function_tables(elf: ElfFile) -> list[FunctionTable]:
    """Reads the tables. Raises the errors in `elf_file.MALFORMED`."""
    tables = []
    for table in symbol_tables(elf):
        rows = table.symbols
        kind = rows["info"] & 0xF
        is_code = (kind == FUNCTION) | (kind == _INDIRECT_FUNCTION)
        rows = rows[is_code & (rows["section"] != 0) & (rows["size"] > 0)]
        begins, sizes, names = (rows[key].astype(np.uint64) for key in ("value", "size", "name"))
        tables.append(FunctionTable(begins, sizes, names, table.strings))
    return tables


def function_bounds(elf: ElfFile) -> tuple[Numbers, Numbers]:
    """Returns begins and ends of functions, sorted, from `.eh_frame`, which stripped files have,
    too; none if it has an unusual encoding. Raises the errors in `elf_file.MALFORMED`."""
    none = np.zeros(0, np.uint64)
    sections = [elf.section(name) for name in TABLES]
    index, frames = (b"" if s is None or not s.is_in_file else elf.content(s) for s in sections)
    if index[:4] != _USUAL_INDEX or sections[0] is None or sections[1] is None:
        return none, none
    pairs = np.frombuffer(index, "<i4", (len(index) - _INDEX_HEAD) // 8 * 2, _INDEX_HEAD)
    begins, entries = (pairs[at::2].astype(np.int64) + sections[0].vaddr for at in (0, 1))
    places = entries - sections[1].vaddr + _ENTRY_SIZE
    inside = (places >= 0) & (places <= len(frames) - 4) & (places % 4 == 0) & (begins >= 0)
    sizes = np.frombuffer(frames, "<u4", len(frames) // 4)[places[inside] // 4]
    order = np.argsort(begins[inside], kind="stable")
    begins = begins[inside][order].astype(np.uint64)
    return begins, begins + sizes[order]


class Functions:
    """The functions of a file: where each begins and ends, sorted by begin."""

    def __init__(self, tables: Sequence[FunctionTable]) -> None:
        begins = np.concatenate([table.begins for table in tables])
        order = np.argsort(begins, kind="stable")
        self._begins = begins[order]
        self._sizes = np.concatenate([table.sizes for table in tables])[order]
        self._names = np.concatenate([table.names for table in tables])[order]
        self._of = np.repeat(np.arange(len(tables)), [len(table.begins) for table in tables])[order]
        self._strings = [table.strings for table in tables]

    def at(self, address: int) -> str:
        """Returns the function that contains this address; empty if none is known."""
        after = int(np.searchsorted(self._begins, np.uint64(address), "right"))
        if not after:
            return ""
        begin = self._begins[after - 1]
        first = int(np.searchsorted(self._begins, begin, "left"))
        holding = np.flatnonzero(np.uint64(address) - begin < self._sizes[first:after])
        if not len(holding):
            return ""
        place = first + int(holding[0])  # the first of several names
        strings, begins = self._strings[int(self._of[place])], int(self._names[place])
        name, zero, _ = strings[begins : begins + _NAME_BYTES_MAX].partition(b"\0")
        return name.decode(errors="replace") if zero else ""


@dataclass(frozen=True)
class _File:
    functions: Functions | None
    begins: Numbers
    ends: Numbers

    def begin(self, offset: int) -> int:
        """Returns the begin of the function at this address, or else the address itself."""
        before = int(np.searchsorted(self.begins, np.uint64(offset), "right")) - 1
        return int(self.begins[before]) if before >= 0 and offset < self.ends[before] else offset


class Symbols:
    """Names frames.

    Args:
        module: returns path and build id of a frame's module.
        debug_files: the directory of debug files by build id.
        open_file: opens the modules' files and debug files.
        unnamed: called once with each module that gives no names, and the reason.
    """

    def __init__(
        self,
        module: Callable[[int], tuple[str, str]],
        debug_files: Path = DEBUG_FILES,
        open_file: OpenFile = open_regular,
        unnamed: Unnamed = lambda _module, _why: None,
    ) -> None:
        self._module, self._debug_files = module, debug_files
        self._open_file, self._unnamed = open_file, unnamed
        self._files: dict[int, _File] = {}
        self._names: dict[tuple[int, int], str] = {}

    def name(self, module: int, offset: int) -> str:
        """Returns the function; without a symbol, the file and where the function begins in it, or
        else the address. The result is one line of printable text.
        """
        key = module, offset
        if key not in self._names:
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            self._names[key] = self._resolve(module, offset)
        return self._names[key]

    def _resolve(self, module: int, offset: int) -> str:
        path, build_id = self._module(module)
        if module not in self._files:
            self._files[module], why = self._read(path, build_id)
            if why:
                self._unnamed(module, why)
        file = self._files[module]
        function = file.functions.at(offset) if file.functions else ""
        if function:
            return sanitise(demangled(function))[:SHOWN_MAX]
        name = sanitise(path.rpartition("/")[2])[:SHOWN_MAX] or "(unknown file)"
        return f"{name}+{file.begin(offset):#x}"

    def _read(self, path: str, build_id: str) -> tuple[_File, str]:
        """Reads the file and its debug file; also returns why they give no names."""
        bounds = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        why = "it has no build id"
        parts: list[FunctionTable] = []
        for place in files_read(path, build_id, self._debug_files):
            why = "it has no symbols"
            try:
                with self._elf(place) as elf:
                    if elf.is_64_bit_little_endian and build_id_of(elf) == build_id:
                        parts += function_tables(elf)
                        bounds = function_bounds(elf)
                    else:
                        why = "another file is in its place"
            except OSError as error:
                why = error.strerror or "it cannot be read"
            except QjouleError as error:
                why = str(error)
            except MALFORMED:
                why = "its symbols are malformed"
        named = any(len(part.begins) for part in parts)
        return _File(Functions(parts) if parts else None, *bounds), "" if named else why

    @contextmanager
    def _elf(self, path: Path) -> Iterator[ElfFile]:
        """Opens the file. Raises `QjouleError`, `OSError`, and the errors in
        `elf_file.MALFORMED`."""
        if str(path) == VDSO:
            yield ElfFile(MemorySource(own_vdso()))
            return
        file = self._open_file(path, str(path))
        try:
            yield ElfFile(FileSource(file.fd))
        finally:
            file.close()


@cache
def cxx_demangler() -> tuple[Callable[..., int | None], Callable[[int], object]] | None:
    """Returns functions that demangle a C++ name and free the result; None: not installed."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    return demangle, free


def demangled(name: str) -> str:
    """Returns a C++ name as it was written; any other name unchanged."""
    functions = cxx_demangler() if name.startswith("_Z") and len(name) <= _MANGLED_MAX else None
    if functions is None:
        return name
    demangle, free = functions
    status = ctypes.c_int()
    address = demangle(name.encode(errors="replace"), None, None, ctypes.byref(status))
    if not address:
        return name
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        free(address)
