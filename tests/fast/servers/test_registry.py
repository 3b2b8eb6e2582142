# SPDX-License-Identifier: Apache-2.0
"""The registry of servers: its numbers, the headers made of it, and a line for each mistake."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qjoule.servers import registry, registry_header

KINDS = {
    "none": 0,
    "mysql": 1,
    "postgres": 2,
    "redis": 3,
    "mongodb": 4,
    "cassandra": 5,
    "voltdb": 6,
    "memcached": 7,
    "generic": 15,
}
DIALECTS = {
    "mysql": 1,
    "postgres": 2,
    "redis": 3,
    "mongodb": 4,
    "cql": 5,
    "voltdb": 6,
    "cql-id": 7,
    "cql-batch": 8,
    "tags": 9,
    "attributes": 10,
    "payload": 11,
    "memcached": 12,
    "unseen": 14,
    "postgres-query-id": 15,
}

GOOD = """
[alpha]
kind = 20
rungs = ["socket", "symbol"]
dialects = { alpha = 200, alpha-id = 201 }
roles = ["alpha-begin", "alpha-end"]
hooks = ["switched"]
thread = true
facts = { port = 65535, text-start = 7 }
programs = { on_alpha = ["socket"] }
programs_with = { on_port = "port" }
maps = { alpha_texts = ["socket", "symbol"] }
maps_with_tags = { alpha_tags = ["socket"] }
needs = { inflate = ["socket"] }

[beta]
of = "alpha"

[gamma]
kind = 21
rungs = ["none"]
"""


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "registry.toml"
    path.write_text(text)
    return path


def test_numbers_in_traces_are_what_they_always_were() -> None:
    """Old traces contain these numbers, so they never change; add a line here for a new server."""
    own = [name for name, server in registry.servers().items() if not server.of]
    assert {name: registry.kind_of(name) for name in ["none", *own]} == KINDS
    assert {registry.name_of(kind): kind for kind in KINDS.values()} == KINDS
    assert dict(registry.dialects()) == DIALECTS


def test_lookups() -> None:
    assert registry.kind_of("ferretdb") == registry.kind_of("mongodb")
    assert registry.name_of(registry.kind_of("ferretdb")) == "mongodb"
    assert registry.roles("ferretdb") == ("mongodb-request", "mongodb-done")
    assert registry.rungs("generic") == ("none",)
    assert registry.server_of("mariadb").name == registry.server_of("mysql").name == "mysql"
    assert list(registry.flavours())[:3] == ["mariadb", "mysql", "postgres"]
    for unknown in ("oracle", "", "MYSQL"):
        for lookup in (registry.kind_of, registry.dialect, registry.roles, registry.rungs):
            with pytest.raises(KeyError):
                lookup(unknown)
    with pytest.raises(KeyError):
        registry.name_of(14)


def test_a_good_table(tmp_path: Path) -> None:
    alpha, beta, gamma = registry.load(table(tmp_path, GOOD))
    assert (alpha.kind, alpha.hooks, dict(alpha.facts)) == (
        20,
        ("switched",),
        {"port": 65535, "text-start": 7},
    )
    assert (beta.name, beta.of, beta.kind, beta.maps) == ("beta", "alpha", 20, alpha.maps)
    assert (beta.flavours, gamma.flavours) == (("beta",), ("gamma",))
    assert (gamma.rungs, gamma.roles, dict(gamma.programs)) == (("none",), (), {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[alpha]", "[2alpha]", "2alpha: a server's name is lower-case letters and digits"),
        ("[alpha]", 'delta = "x"\n[alpha]', "delta: not a table"),
        ("[gamma]", "[alpha]", "alpha"),  # by tomllib, with line and column
        ("kind = 20", "", "alpha: no 'kind'"),
        ('rungs = ["none"]', "rungs = []", "gamma: 'rungs' is empty"),
        ('rungs = ["none"]', 'rungs = ["usdt"]', "gamma: 'usdt' of 'rungs' is none of none,"),
        ('rungs = ["none"]', 'rungs = "none"', "gamma: 'rungs' is not a list of words"),
        ('rungs = ["none"]', 'rungs = ["none", "none"]', "gamma: 'none' twice in 'rungs'"),
        ("kind = 21", "kind = 20", "gamma: alpha has kind 20"),
        ("kind = 21", "kind = 32", "gamma: kind is no number from 1 to 31"),
        ("kind = 21", "kind = true", "gamma: kind is no number from 1 to 31"),
        ("kind = 21", "kind = 21\ncolour = 3", "gamma: unknown key 'colour'"),
        ("alpha = 200", "alpha = 9", "alpha: the tags has a dialect 9"),
        ("kind = 21", "kind = 21\ndialects = 3", "gamma: 'dialects' is not a table"),
        ("kind = 21", "kind = 21\ndialects = {g = 200}", "gamma: alpha has a dialect 200"),
        ('"alpha-end"', '"alpha-begin"', "alpha: 'alpha-begin' twice in 'roles'"),
        ('"alpha-end"', '"beta-end"', "alpha: role 'beta-end' is not alpha-... in lower case"),
        ("kind = 21", 'kind = 21\nflavours = ["X"]', "gamma: flavour 'X' is not lower-case"),
        ("kind = 21", 'kind = 21\nflavours = ["beta"]', "gamma: beta has a flavour 'beta'"),
        ("thread = true", "thread = 1", "alpha: 'thread' is neither true nor false"),
        ('on_port = "port"', 'on_port = "x"', "alpha: 'on_port' of 'programs_with' needs no fact"),
        ("port = 65535", "port = 0x8000000000000000", "alpha: 'port' is no number from 1 to"),
        ("on_alpha =", "on-alpha =", "alpha: 'on-alpha' of 'programs' is no name of C"),
        ('on_alpha = ["socket"]', "on_alpha = []", "alpha: 'on_alpha' of 'programs' has no rung"),
        ('on_alpha = ["socket"]', 'on_alpha = ["agent"]', "'agent' of 'on_alpha' is none of"),
        ("inflate =", "deflate =", "alpha: 'deflate' of 'needs' is none of inflate"),
        ('of = "alpha"', 'of = "omega"', "beta: 'of' names no server with a table of its own"),
        ('of = "alpha"', 'of = "alpha"\nkind = 22', "beta: a table with 'of' has no other key"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(registry.RegistryError) as caught:
        registry.load(table(tmp_path, GOOD.replace(old, new, 1)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "registry.toml").write_bytes(b"\xff")
    for name in ("registry.toml", "absent.toml"):
        with pytest.raises(registry.RegistryError):
            registry.load(tmp_path / name)


def test_the_header_has_a_list_of_each_kind(tmp_path: Path) -> None:
    header = registry_header.headers(registry.load(table(tmp_path, GOOD)))["registry.h"]
    flat = header.replace(" \\\n\t", " ")
    both, socket = "(1u << QJ_RUNG_SOCKET | 1u << QJ_RUNG_SYMBOL)", "(1u << QJ_RUNG_SOCKET)"
    for name, entries in {
        "SERVERS": "X(alpha, ALPHA, 20) X(gamma, GAMMA, 21)",
        "DIALECTS": "X(alpha, ALPHA, 200) X(alpha_id, ALPHA_ID, 201)",
        "MAPS": f"X(alpha_texts, QJ_SERVER_ALPHA, {both})",
        "MAPS_WITH_TAGS": f"X(alpha_tags, QJ_SERVER_ALPHA, {socket})",
        "PROGRAMS": f"X(on_alpha, QJ_SERVER_ALPHA, {socket})",
        "PROGRAMS_WITH": "X(on_port, QJ_SERVER_ALPHA, QJ_ALPHA_PORT)",
        "PROGRAM_NAMES": "X(on_alpha) X(on_port)",
        "NEEDS": f"X(inflate, QJ_SERVER_ALPHA, {socket})",
        "HOOKS_SWITCHED": "X(alpha, ALPHA)",
    }.items():
        assert f"#define QJ_{name}(X) {entries}\n" in flat
    assert "enum qj_alpha_fact {\n\tQJ_ALPHA_PORT = 0,\n\tQJ_ALPHA_TEXT_START = 1,\n};" in header
    assert 'X(QJ_SERVER_ALPHA, QJ_ALPHA_TEXT_START, "text-start", 0x7ULL)\n' in flat


TREE = Path(__file__).parents[3]
SERVERS = "attribution/src/qjoule/servers"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The inputs of the registry's headers, in a directory with a space in its name."""
    copy = tmp_path / "a tree"
    (copy / SERVERS).mkdir(parents=True)
    for name in ("Makefile", "agent", "packaging"):
        (copy / name).symlink_to(TREE / name)
    for name in ("", "servers/"):
        part = f"attribution/src/qjoule/{name}__init__.py"
        shutil.copy(TREE / part, copy / part)
    for name in ("registry.toml", "registry.py", "registry_header.py"):
        shutil.copy(TREE / SERVERS / name, copy / SERVERS / name)
    return copy


def make(tree: Path) -> str:
    """The errors of building the headers; empty if they were built."""
    command = ["make", "build/bpf/registry.h"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def add_server(tree: Path, text: str) -> None:
    with (tree / SERVERS / "registry.toml").open("a") as registry_table:
        registry_table.write(f"\n[newdb]\nrungs = ['none']\n{text}")


def test_a_mistake_stops_the_build_and_is_named(tree: Path) -> None:
    add_server(tree, "kind = 1\n")
    assert "registry.toml: newdb: mysql has kind 1\n" in make(tree)
    assert not (tree / "build/bpf/registry.h").exists()


def test_a_new_server_is_in_the_headers(tree: Path) -> None:
    assert make(tree) == ""
    add_server(tree, "kind = 31\nthread = true\nhooks = ['forked']\n")
    assert make(tree) == ""
    headers = tree / "build/bpf"
    assert "X(newdb, NEWDB, 31)" in (headers / "registry.h").read_text("utf-8")
    assert '"newdb/thread.h"' in (headers / "server_threads.h").read_text("utf-8")
    assert '"newdb/hooks.bpf.h"' in (headers / "server_hooks.h").read_text("utf-8")


@pytest.mark.parametrize("arguments", [(), ("1", "2", "3")])
def test_another_number_of_arguments_is_refused(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "qjoule.servers.registry_header", *arguments]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
