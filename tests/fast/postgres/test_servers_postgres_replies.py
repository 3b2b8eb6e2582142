# SPDX-License-Identifier: Apache-2.0
"""Where a PostgreSQL keeps its replies: a variable without a symbol, found by the code that sets
it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qjoule.servers.elf import open_executable
from qjoule.servers.postgres.replies import send_buffer
from qjoule.servers.signatures import CannotResolve
from servers.toy_elf import BUILDS, toy_program

TOY = """
#include <stdlib.h>
void *TopMemoryContext;
static void *buffer, *other;
static int size, start;
{allocator}
__attribute__((noinline)) void other_things(void) {{ start++; }}
__attribute__((noinline)) void {name}(void)
{{
	{before}
	size = 8192;
	buffer = {call};
	start = size - 1;
	other_things();
}}
int main(void) {{ {name}(); return buffer == other; }}
"""
ALLOCATOR = (
    "__attribute__((noinline)) void *MemoryContextAlloc(void *in, size_t n)"
    " { return calloc(n, in != 0); }"
)
CALL = "MemoryContextAlloc(TopMemoryContext, 8192)"


def toy(
    path: Path,
    *flags: str,
    name: str = "pq_init",
    allocator: str = ALLOCATOR,
    before: str = "",
    call: str = CALL,
) -> Path:
    source = TOY.format(name=name, allocator=allocator, before=before, call=call)
    return toy_program(path, source, *flags)


def address(path: Path, variable: str = "buffer") -> int:
    """Its address by the symbol table, which is then removed."""
    listed = subprocess.run(["nm", str(path)], check=True, capture_output=True, text=True).stdout
    (line,) = (line for line in listed.splitlines() if line.split()[-1] == variable)
    subprocess.run(["strip", str(path)], check=True)
    return int(line.split()[0], 16)


@pytest.mark.parametrize("flags", BUILDS)
def test_it_is_where_the_compiler_put_it(tmp_path: Path, flags: tuple[str, ...]) -> None:
    path = toy(tmp_path / "postgres", *flags)
    expected = address(path)
    executable = open_executable(path)
    assert send_buffer(executable) == expected - executable.data_vaddr


def test_other_blocks_come_before(tmp_path: Path) -> None:
    """From version 17 on the connection's own state is allocated first."""
    other = "other = MemoryContextAlloc(TopMemoryContext, 400);"
    path = toy(tmp_path / "postgres", "-O2", before=other)
    expected = address(path)
    executable = open_executable(path)
    assert send_buffer(executable) == expected - executable.data_vaddr


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "pq_begin"}, "0 functions are named pq_init"),
        ({"call": "MemoryContextAlloc(TopMemoryContext, 4096)"}, "as expected"),
        ({"call": "calloc(8192, 1)"}, "as expected"),
    ],
)
def test_other_code_is_refused(tmp_path: Path, changes: dict[str, str], why: str) -> None:
    path = toy(tmp_path / "postgres", "-O2", **changes)
    with pytest.raises(CannotResolve, match=why):
        send_buffer(open_executable(path))


def test_the_real_one() -> None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed")
    executable = open_executable(found[-1])
    assert 0 < send_buffer(executable) < executable.data_size
