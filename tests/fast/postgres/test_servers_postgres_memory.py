# SPDX-License-Identifier: Apache-2.0
"""Where a PostgreSQL keeps what the symbol rung reads, found by its exports and by the code that
sets it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.elf import open_executable
from qjoule.servers.postgres.memory import BackendMemory, backend_memory, portal_start_offset
from qjoule.servers.signatures import CannotResolve
from servers.toy_elf import BUILDS, toy_program

TOY = """
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
struct portal {{
	char before[{before}];
	int status;
	void *query, *snapshot;
	bool atStart, atEnd;
	uint64_t portalPos;
	int64_t creation_time;
	bool visible;
}};
void *MyProcPort;
char *application_name;
__attribute__((noinline)) int64_t now(void) {{ return (int64_t)(intptr_t)&MyProcPort; }}
__attribute__((noinline)) struct portal *{name}(void)
{{
	struct portal *portal = calloc(1, sizeof(*portal));
	portal->status = 4;
	portal->atStart = true;
	portal->atEnd = true;
	portal->visible = {visible};
	portal->creation_time = now();
	return portal;
}}
int main(void) {{ return {name}()->atEnd + (application_name != 0); }}
"""


def toy(path: Path, *flags: str, name: str = "CreatePortal", before: int = 132) -> Path:
    return compiled(path, *flags, name=name, before=before, visible="true")


def compiled(path: Path, *flags: str, **changes: object) -> Path:
    return toy_program(path, TOY.format(**changes), *flags)


def expected(before: int) -> int:
    """status is aligned to 4, pointers and the fields after them to 8 (System V ABI)."""
    status = -(-before // 4) * 4
    return -(-(status + 4) // 8) * 8 + 16


@pytest.mark.parametrize("flags", [*BUILDS, ("-O3",)])
@pytest.mark.parametrize("before", [112, 132, 136])
def test_a_portals_start_is_where_the_compiler_put_it(
    tmp_path: Path, flags: tuple[str, ...], before: int
) -> None:
    path = toy(tmp_path / "postgres", *flags, before=before)
    assert portal_start_offset(open_executable(path)) == expected(before)


def test_other_code_is_refused(tmp_path: Path) -> None:
    path = toy(tmp_path / "other", "-O2", name="MakePortal")
    with pytest.raises(CannotResolve, match="0 functions are named CreatePortal"):
        portal_start_offset(open_executable(path))
    path = compiled(tmp_path / "changed", "-O2", name="CreatePortal", before=132, visible="false")
    memory, notes = backend_memory(open_executable(path))
    assert memory.portal_start == 0
    assert "does not set a portal's flags as expected" in notes[0]


def test_variables_that_are_exported(tmp_path: Path) -> None:
    path = toy(tmp_path / "postgres", "-O2")
    executable = open_executable(path)
    memory, notes = backend_memory(executable)
    assert notes == ()
    for distance, name in ((memory.client, "MyProcPort"), (memory.application, "application_name")):
        variable = executable.variable(name)
        assert variable is not None
        assert distance + executable.data_vaddr == variable.vaddr
    assert BackendMemory(16, 0, 8, 24).facts() == {
        **{"client": 16, "application": 0, "portal-start": 8},
        **{"statement": 24, "authenticates": 0},
    }


def test_the_real_one() -> None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed")
    memory, notes = backend_memory(open_executable(found[-1]))
    assert notes == ()
    assert 0 < memory.portal_start < 1024
    assert memory.portal_start % 8 == 0
