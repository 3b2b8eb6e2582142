# SPDX-License-Identifier: Apache-2.0
"""The forms of code from which offsets in MySQL's and MariaDB's memory are taken, on small programs
with the same functions: whatever the compiler makes of them, the offset is right or refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.function_code import code_of, the_function
from qjoule.servers.mysql import memory_code as forms
from qjoule.servers.mysql.memory import session_memory
from qjoule.servers.signatures import CannotResolve
from servers.toy_elf import BUILDS, toy_program

#: A session (`thd`), its security context, a prepared statement, and what MariaDB and MySQL do with
#: them. `A` to `E` are distances.
TOY = """
#include <stddef.h>
#include <stdint.h>
#define OUTSIDE __attribute__((noinline, noipa))
struct name {{ const char *text; size_t length; }};
struct vio {{ int fd; void (*end)(struct vio *); }};
struct statement {{ char before[{A}]; unsigned long id; char between[40]; struct name text; }};
struct security {{ char before[{B}]; const char *user; }};
struct thd {{
	char before[{C}];
	struct statement *last;
	char between[{D}];
	struct security *security;
	struct vio *active_vio;
	struct name db;
}};
OUTSIDE struct statement *found(struct thd *thd, unsigned long id)
{{
	if (thd->last && thd->last->id == id)
		return thd->last;
	return NULL;
}}
OUTSIDE void close_vio(struct thd *thd)
{{
	if (thd->active_vio) {{
		thd->active_vio->end(thd->active_vio);
		thd->active_vio = NULL;
	}}
}}
OUTSIDE const char *user(struct thd *thd)
{{
	if (!thd->security)
		return 0;
	return thd->security->user;
}}
OUTSIDE struct name *text(struct statement *statement) {{ return &statement->text; }}
OUTSIDE int security(struct thd *thd, struct security **to)
{{
	*to = thd->security;
	return 0;
}}
OUTSIDE int unlike(struct thd *thd) {{ return thd->last == 0; }}
OUTSIDE void other(struct thd *thd, struct vio *vio)
{{
	if (vio->fd)
		vio->end(vio);
	thd->active_vio = NULL;
}}
int main(void) {{ return 0; }}
"""
LAYOUTS = ({"A": 56, "B": 8, "C": 4096, "D": 512}, {"A": 584, "B": 16, "C": 7944, "D": 1768})
PROGRAMS = [(flags, layout) for flags in BUILDS for layout in LAYOUTS]


@pytest.fixture(params=PROGRAMS, ids=str)
def toy(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Executable, dict[str, int]]:
    """A program and its layout; `small`: it was optimised for size."""
    flags, layout = request.param
    path = toy_program(tmp_path / "toy", TOY.format(**layout), *flags)
    return open_executable(path), layout | {"small": "-Os" in flags}


def code(executable: Executable, name: str) -> bytes:
    function: Symbol = the_function(executable, name)
    return code_of(executable, function, 512)[1][: function.size or None]


def test_a_statement_that_was_found_last(toy: tuple[Executable, dict[str, int]]) -> None:
    executable, layout = toy
    assert forms.found_by_id(code(executable, "found")) == {(layout["C"], layout["A"])}


def test_a_clients_connection(toy: tuple[Executable, dict[str, int]]) -> None:
    """Optimised for size, it is cleared through a register: that is refused."""
    executable, layout = toy
    content = code(executable, "close_vio")
    if layout["small"]:
        with pytest.raises(CannotResolve):
            forms.cleared_pointer(content)
        return
    assert forms.cleared_pointer(content) == layout["C"] + 8 + layout["D"] + 8


def test_a_member_of_a_member(toy: tuple[Executable, dict[str, int]]) -> None:
    executable, layout = toy
    security = layout["C"] + 8 + layout["D"]
    assert forms.pointer_in_pointer(code(executable, "user")) == (security, layout["B"])
    assert forms.returned_member(code(executable, "security")) == security


def test_a_members_address(toy: tuple[Executable, dict[str, int]]) -> None:
    executable, layout = toy
    assert forms.address_of(code(executable, "text")) == layout["A"] + 8 + 40


@pytest.mark.parametrize("name", ["unlike", "other", "text", "main"])
def test_code_of_another_form_is_refused(toy: tuple[Executable, dict[str, int]], name: str) -> None:
    executable, _ = toy
    content = code(executable, name)
    assert forms.found_by_id(content) == set()
    for form in (forms.cleared_pointer, forms.pointer_in_pointer, forms.returned_member):
        with pytest.raises(CannotResolve):
            form(content)


@pytest.mark.parametrize("bytes_", [b"", b"\x90" * 64, b"\xff" * 64, b"\xe8"])
def test_bytes_that_are_no_code_are_refused(bytes_: bytes) -> None:
    assert forms.found_by_id(bytes_) == set()
    for form in (forms.cleared_pointer, forms.address_of, forms.below_thread_pointer):
        with pytest.raises(CannotResolve):
            form(bytes_)


def test_a_program_without_these_functions_has_no_offsets(
    toy: tuple[Executable, dict[str, int]],
) -> None:
    found, notes = session_memory(toy[0])
    assert not any(found.facts().values())
    assert len(notes) == 4, "statements, names, settings, addresses: a line each"
