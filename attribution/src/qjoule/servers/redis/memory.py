# SPDX-License-Identifier: Apache-2.0
"""Variables in a Redis server's memory: its options, as far as they decide how it can be traced."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from qjoule.errors import QjouleError
from qjoule.servers.access import ProcFile, mapped_files
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable, Symbol

#: config.c: names of the table of all options, from 7.0 on and before.
_OPTIONS = ("static_configs", "configs")
_OPTION_WORDS = 24  #: more than struct standardConfig has
_VARIABLE_BYTES_MAX = 1 << 20  #: `configs` has 60 KB
_THREADS_OPTION = b"io-threads"
_READS_OPTION = b"io-threads-do-reads"  #: from 6.0 to 7.4; in later versions all io-threads read
_SETTINGS = "server"  #: the global struct redisServer, whose fields hold the options


@dataclass(frozen=True)
class Memory:
    """Reads the process's memory, by addresses of its executable."""

    descriptor: int
    executable: Executable
    base: int  #: added to addresses of the file

    def symbol(self, *names: str) -> Symbol:
        """Returns the first of these global variables that exists.

        Raises:
            QjouleError: the executable has none.
        """
        for name in names:
            if variable := self.executable.variable(name):
                return variable
        raise QjouleError(f"its executable lacks the symbol {names[0]}")

    def of(self, symbol: Symbol) -> bytes:
        """
        Raises:
            QjouleError: its memory cannot be read, or ends before that.
        """
        return self.read(symbol.vaddr + self.base, symbol.size, symbol.name)

    def read(self, address: int, size: int, what: str) -> bytes:
        if size > _VARIABLE_BYTES_MAX:
            raise QjouleError(f"{what} has {size} bytes")
        try:
            content = os.pread(self.descriptor, size, address)
        except OverflowError:
            raise QjouleError(f"nothing is at {what}") from None
        except OSError as error:
            raise QjouleError(f"its memory may not be read: {error.strerror}") from None
        if len(content) != size:
            raise QjouleError(f"nothing is at {what}")
        return content


@contextmanager
def memory_of(candidate: Candidate, executable: Executable) -> Iterator[Memory]:
    """
    Raises:
        QjouleError: its memory may not be read, or its load address is unknown.
    """
    base = 0
    if not executable.is_fixed:
        whole = mapped_files(candidate.access.proc(ProcFile.MAPS), ".*")
        bases = [mapping.base for mapping in whole if mapping.name == candidate.exe_name]
        if not bases:
            raise QjouleError("its executable is not mapped")
        base = bases[0]
    descriptor = candidate.access.memory()
    try:
        yield Memory(descriptor, executable, base)
    finally:
        os.close(descriptor)


def threads_read(memory: Memory) -> bool:
    """Returns true if io-threads read.

    From 8.0 on, each io-thread reads from its own clients (iothread.c), and the option is gone.

    Raises:
        QjouleError: that cannot be determined.
    """
    fields = _fields_of(memory, _READS_OPTION)
    if fields is not None:
        return _is_set(memory, _READS_OPTION, fields)
    if _fields_of(memory, _THREADS_OPTION) is None:
        raise QjouleError("its table of options is not understood")
    return True


def _fields_of(memory: Memory, option: bytes) -> Sequence[int] | None:
    """Returns the words after an option's name in the table of options; None: no such option.

    Raises:
        QjouleError: the table cannot be read.
    """
    name, table = memory.executable.constant(option), memory.symbol(*_OPTIONS)
    content = memory.of(table)
    words = struct.unpack(f"<{len(content) // 8}Q", content[: len(content) // 8 * 8])
    if name is None or name + memory.base not in words:
        return None
    at = words.index(name + memory.base) + 1
    return words[at : at + _OPTION_WORDS]


def _is_set(memory: Memory, option: bytes, fields: Sequence[int]) -> bool:
    """Returns the value of a yes-or-no option.

    The option's row in the table begins with the address of its name. The first address in the row
    that points into `server` is that of the variable (struct standardConfig, boolConfigData).

    Raises:
        QjouleError: the value cannot be determined.
    """
    settings = memory.symbol(_SETTINGS)
    first = settings.vaddr + memory.base
    variable = next((field for field in fields if first <= field < first + settings.size), None)
    if variable is None:
        raise QjouleError(f"where {option.decode()} is kept is not known")
    (value,) = struct.unpack("<i", memory.read(variable, 4, option.decode()))
    if value not in (0, 1):
        raise QjouleError(f"{option.decode()} is {value}")
    return bool(value)
