# SPDX-License-Identifier: Apache-2.0
"""Small executables that export a server's function names, compiled on the spot."""

from __future__ import annotations

import lzma
import subprocess
from collections.abc import Iterable
from pathlib import Path

from qjoule.servers.elf import open_executable

MARIADB_10_11 = "_Z16dispatch_command19enum_server_commandP3THDPcjb"
MARIADB_10_5 = "_Z16dispatch_command19enum_server_commandP3THDPcjbb"
MYSQL_5_6 = "_Z16dispatch_command19enum_server_commandP3THDPcj"
MYSQL_8 = "_Z16dispatch_commandP3THDPK8COM_DATA19enum_server_command"
POSTGRES = (
    "pgstat_report_activity",
    "PortalRun",
    "PortalErrorCleanup",
    "LaunchParallelWorkers",
    "BecomeLockGroupMember",
)

#: Ways in which a compiler may have written a function.
BUILDS = (
    ("-O2", "-fcf-protection=none"),
    ("-O2", "-fcf-protection=full"),
    ("-O1",),
    ("-Os",),
    ("-O2", "-no-pie", "-fno-pie"),
)


def toy_program(path: Path, source: str, *flags: str) -> Path:
    """An executable from this C source, which keeps and exports its functions."""
    written = path.with_suffix(".c")
    written.write_text(source)
    _run("gcc", "-g", "-fno-inline", *flags, "-rdynamic", "-o", path, written)
    return path


def toy_server(
    path: Path,
    functions: Iterable[str],
    *,
    banner: str = "",
    variables: Iterable[str] = (),
    flags: tuple[str, ...] = (),
    exported: bool = True,
) -> Path:
    """An executable with these functions (any name an assembler accepts), this string and these
    pointers.
    """
    lines = ["#include <unistd.h>", "static volatile int counter;"]
    lines.append("int main(int n, char **v) { return n > 1 ? pause() : counter + !v; }")
    lines.append(f'__attribute__((used)) static const char banner[] = "\\0" "{banner}\\0";')
    for number, name in enumerate(functions):
        lines.append(f'int f{number}(int a, void *b) __asm__("{name}");')
        lines.append(
            f"int f{number}(int a, void *b) {{ counter += a; return counter + (b != 0); }}"
        )
    lines += [f"void *{name};" for name in variables]
    source = path.with_suffix(".c")
    source.write_text("\n".join(lines))
    export = ["-rdynamic"] if exported else []
    _run("gcc", "-O1", "-fcf-protection=none", *flags, *export, "-o", path, source)
    source.unlink()
    return path


def strip(path: Path) -> Path:
    """Leaves only what the dynamic linker needs, as distributions do."""
    _run("strip", path)
    return path


def pack_symbols(path: Path) -> Path:
    """Moves .symtab into a compressed .gnu_debugdata section, as Fedora does."""
    debug, packed = path.with_suffix(".debug"), path.with_suffix(".xz")
    _run("objcopy", "--only-keep-debug", path, debug)
    packed.write_bytes(lzma.compress(debug.read_bytes()))
    strip(path)
    _run("objcopy", "--add-section", f".gnu_debugdata={packed}", path)
    debug.unlink()
    packed.unlink()
    return path


def _run(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)


def offset_of(path: Path, name: str) -> int:
    """Where a function is in an executable file."""
    executable = open_executable(path)
    (symbol,) = executable.functions(name)
    offset = executable.file_offset(symbol.vaddr)
    assert offset is not None
    return offset
