# SPDX-License-Identifier: Apache-2.0
"""What is read from MySQL's and MariaDB's executables and configuration is right or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.function_code import CannotResolve, code_of, the_function
from qjoule.servers.mysql import memory_code as forms
from qjoule.servers.mysql.memory_code import member_tested
from qjoule.servers.mysql.settings import read_options
from qjoule.servers.mysql.support import _mysql_version
from qjoule.servers.mysql.vocabulary import BEGINS_EXPRESSION, vocabulary
from servers.fake_proc import FakeProc
from servers.toy_elf import BUILDS, MYSQL_8, toy_program, toy_server

#: Number of each word, and whether an expression follows it.
WORDS = {"<": (549, 1), "ACCESSIBLE": (259, 0), "ACCOUNT": (260, 0), "SELECT": (748, 1)}
SYNONYM, FUNCTION, HINT = ("SYNONYM", 260), ("COUNT", 352), ("NO_ICP", 1011)
#: Tokens of digests, from this number on.
FIRST_SPECIAL = 1100
SPECIAL = (
    *("?", "?, ...", "(?)", "(?) /* , ... */", "(...)", "(...) /* , ... */", "(tok_id)"),
    *("(tok_id_at)", "/*+", "*/", "IN (...)", "(by_num_col)"),
)
_SOURCE = """
struct symbol { const char *name; unsigned length, token; int group; };
struct token { const char *text; int length; _Bool append_space, start_expr; };
#define S(text, number, group) { text, sizeof(text) - 1, number, group }
#define T(text, start) { text, sizeof(text) - 1, 1, start }
__attribute__((used)) static const struct symbol symbols[] = { %s };
__attribute__((used)) static struct token tokens[] = { %s };
int main(void) { return 0; }
"""


def toy_mysql(path: Path, *flags: str) -> Path:
    """Compiled with these flags; position-independent unless they say otherwise."""
    symbols = [f'S("{word}", {number}, 1)' for word, (number, _) in WORDS.items()]
    symbols += [f'S("{SYNONYM[0]}", {SYNONYM[1]}, 1)', f'S("{FUNCTION[0]}", {FUNCTION[1]}, 2)']
    symbols.append(f'S("{HINT[0]}", {HINT[1]}, 8)')
    texts = {number: (word, start) for word, (number, start) in WORDS.items()}
    texts |= {FIRST_SPECIAL + at: (text, 0) for at, text in enumerate(SPECIAL)}
    texts |= {ord("("): ("(", 1)}
    tokens = [
        f'T("{texts[n][0]}", {texts[n][1]})' if n in texts else 'T("(unknown)", 0)'
        for n in range(FIRST_SPECIAL + len(SPECIAL))
    ]
    return toy_program(path, _SOURCE % (", ".join(symbols), ", ".join(tokens)), *flags)


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
PROGRAMS = [*((flags, LAYOUTS[0]) for flags in BUILDS), (BUILDS[0], LAYOUTS[1])]


@pytest.fixture(scope="module", params=PROGRAMS, ids=str)
def toy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Executable, dict[str, int]]:
    """A program and its layout; `small`: it was optimised for size."""
    flags, layout = request.param
    path = toy_program(tmp_path_factory.mktemp("toy") / "toy", TOY.format(**layout), *flags)
    return open_executable(path), layout | {"small": "-Os" in flags}


def code(executable: Executable, name: str) -> bytes:
    function: Symbol = the_function(executable, name)
    return code_of(executable, function, 512)[1][: function.size or None]


def test_each_form_of_code_gives_its_offset(toy: tuple[Executable, dict[str, int]]) -> None:
    executable, layout = toy
    security = layout["C"] + 8 + layout["D"]
    assert forms.found_by_id(code(executable, "found")) == {(layout["C"], layout["A"])}
    assert forms.pointer_in_pointer(code(executable, "user")) == (security, layout["B"])
    assert forms.returned_member(code(executable, "security")) == security
    assert forms.address_of(code(executable, "text")) == layout["A"] + 8 + 40
    if layout["small"]:  # optimised for size, the connection is cleared through a register
        with pytest.raises(CannotResolve):
            forms.cleared_pointer(code(executable, "close_vio"))
    else:
        assert forms.cleared_pointer(code(executable, "close_vio")) == security + 8


STRICT = 0x600000
SETNE_RET = "0f95c0 c3"


@pytest.mark.parametrize(
    ("code", "member"),
    [
        ("48f787 98080000 00006000", 0x898),  # testq $0x600000,0x898(%rdi)
        ("f30f1efa f687 9a080000 60", 0x898),  # endbr64; testb $0x60,0x89a(%rdi)
        ("48f787 98080000 00002000", None),  # another bit
        ("f687 9a080000 61", None),  # further bits
    ],
)
def test_the_tested_bits_tell_the_member(code: str, member: int | None) -> None:
    content = bytes.fromhex(code + SETNE_RET)
    if member is not None:
        assert member_tested(content, STRICT) == member
    else:
        with pytest.raises(CannotResolve):
            member_tested(content, STRICT)


@pytest.mark.parametrize("flags", [(), ("-no-pie", "-fno-pie")], ids=["pie", "fixed"])
def test_numbers_and_flags_of_tokens(tmp_path: Path, flags: tuple[str, ...]) -> None:
    tokens = vocabulary(open_executable(toy_mysql(tmp_path / "p", *flags)), "mysql")
    assert tokens["SELECT"] == 748 | BEGINS_EXPRESSION
    assert tokens["<"] == 549 | BEGINS_EXPRESSION
    assert tokens["("] == ord("(") | BEGINS_EXPRESSION
    assert tokens[")"] == ord(")")
    assert tokens[SYNONYM[0]] == tokens["ACCOUNT"] == 260
    assert tokens[FUNCTION[0] + "("] == FUNCTION[1]
    assert FUNCTION[0] not in tokens, "a function's name is a word only in front of a parenthesis"
    assert HINT[0] not in tokens
    for text in ("?", "IN (...)", "(tok_id)", "(by_num_col)"):
        assert tokens[text] == FIRST_SPECIAL + SPECIAL.index(text)


def test_an_executable_without_tables(tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "p", [MYSQL_8]))
    with pytest.raises(CannotResolve, match="table of words"):
        vocabulary(executable, "mysql")


HELP = b"\0For the legacy version before MySQL 8.0.29, see MySQL 8.0.29 and mysql-8.0.29\0"


@pytest.mark.parametrize(
    ("strings", "version"),
    [
        (HELP + b"mysqld-9.7\0mysqld\0MySQL 9.7.4\0", b"9.7.4"),
        (b"\0mysqld-8.0\0../mysql-8.0.15/sql/a.cc\0 before MySQL 5.7.9 \0", b"8.0.15"),
        (b"\0mysqld-8.0\0mysqld-8.4\0MySQL 8.4.1\0", b"8.4.1"),  # two: neither is believed
        (b"", b""),
    ],
)
def test_the_version_is_of_the_servers_own_series(strings: bytes, version: bytes) -> None:
    assert _mysql_version(strings) == version


def persisted(tmp_path: Path, content: Any, *arguments: str, flavour: str = "mysql") -> Any:
    """The options of a server below a root of its own, with this mysqld-auto.cnf."""
    proc, root = FakeProc(tmp_path), tmp_path / "root"
    data = root / "var" / "lib" / "mysql"
    data.mkdir(parents=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (data / "mysqld-auto.cnf").write_text(text)
    entry = proc.add(
        7, "/usr/sbin/mysqld", root=root, cwd=str(data), arguments=["--no-defaults", *arguments]
    )
    candidate = Candidate(DirectAccess(entry, None), "/usr/sbin/mysqld", 7)
    return read_options(candidate, flavour, "8.4.1")


STORED = {
    "Version": 2,
    "mysql_dynamic_variables": {
        "tls_version": {"Value": "", "Metadata": {"Host": "h", "User": "u", "Timestamp": 1}},
        "max_connections": {"Value": "152", "Metadata": {}},
    },
    "mysql_static_variables": {"thread_handling": {"Value": "pool-of-threads"}},
}


def test_persisted_variables_count_below_a_chroot(tmp_path: Path) -> None:
    options = persisted(tmp_path, STORED, "--tls-version=TLSv1.2")
    assert options.text("tls-version") == ""
    assert options.source("tls-version") == "/var/lib/mysql/mysqld-auto.cnf"
    assert options.text("thread-handling") == "pool-of-threads"
    assert not options.problem


@pytest.mark.parametrize("content", ["{", "[" * 100_000])
def test_a_damaged_file_leaves_the_configuration_unknown(tmp_path: Path, content: str) -> None:
    assert "mysqld-auto.cnf" in persisted(tmp_path, content).problem
