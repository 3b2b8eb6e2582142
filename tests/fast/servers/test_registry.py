# SPDX-License-Identifier: Apache-2.0
"""The registry of servers: its contents, and that each mistake gives one line that names it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
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


def test_servers_cannot_be_changed() -> None:
    server = registry.servers()["mysql"]
    with pytest.raises(FrozenInstanceError):
        server.kind = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        server.facts["pool"] = 2  # type: ignore[index]


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
        ("[alpha]", "[Alpha]", "Alpha: a server's name is lower-case letters and digits"),
        ("[alpha]", "[2alpha]", "2alpha: a server's name is lower-case letters and digits"),
        ("[alpha]", "[none]", "none: a server's name is lower-case letters and digits"),
        ("[alpha]", 'delta = "x"\n[alpha]', "delta: not a table"),
        ("[gamma]", "[alpha]", "alpha"),  # by tomllib, with line and column
        ("kind = 20", "", "alpha: no 'kind'"),
        ('rungs = ["socket", "symbol"]', "", "alpha: no 'rungs'"),
        ('rungs = ["none"]', "rungs = []", "gamma: 'rungs' is empty"),
        ('rungs = ["none"]', 'rungs = ["usdt"]', "gamma: 'usdt' of 'rungs' is none of none,"),
        ('rungs = ["none"]', 'rungs = "none"', "gamma: 'rungs' is not a list of words"),
        ('rungs = ["none"]', "rungs = [1]", "gamma: 'rungs' is not a list of words"),
        ('rungs = ["none"]', 'rungs = ["none", "none"]', "gamma: 'none' twice in 'rungs'"),
        ("kind = 21", "kind = 20", "gamma: alpha has kind 20"),
        ("kind = 21", "kind = 0", "gamma: kind is no number from 1 to 31"),
        ("kind = 21", "kind = 32", "gamma: kind is no number from 1 to 31"),
        ("kind = 21", "kind = true", "gamma: kind is no number from 1 to 31"),
        ("kind = 21", 'kind = "21"', "gamma: kind is no number from 1 to 31"),
        ("kind = 21", "kind = 21\ncolour = 3", "gamma: unknown key 'colour'"),
        ("kind = 21", 'kind = 21\nname = "x"', "gamma: unknown key 'name'"),
        ("alpha = 200", "alpha = 9", "alpha: the tags has a dialect 9"),
        ("alpha = 200", "alpha = 201", "alpha: alpha has a dialect 201"),
        ("alpha = 200", "alpha = 256", "alpha: 'alpha' is no number from 1 to 255"),
        ("alpha = 200", "tags = 200", "alpha: the tags has a dialect 'tags'"),
        ("alpha = 200", "Alpha = 200", "alpha: 'Alpha' of 'dialects' is not lower-case words"),
        ("kind = 21", "kind = 21\ndialects = 3", "gamma: 'dialects' is not a table"),
        ("kind = 21", "kind = 21\ndialects = {g = 200}", "gamma: alpha has a dialect 200"),
        ("kind = 21", "kind = 21\ndialects = {alpha = 9}", "gamma: the tags has a dialect 9"),
        ("kind = 21", "kind = 21\ndialects = {alpha = 3}", "gamma: alpha has a dialect 'alpha'"),
        ('"alpha-end"', '"alpha-begin"', "alpha: 'alpha-begin' twice in 'roles'"),
        ('"alpha-end"', '"beta-end"', "alpha: role 'beta-end' is not alpha-... in lower case"),
        ('"alpha-end"', '"alpha-"', "alpha: role 'alpha-' is not alpha-... in lower case"),
        ('"alpha-end"', '"alpha-a\\"b"', "alpha: role 'alpha-a\"b' is not alpha-..."),
        ("kind = 21", 'kind = 21\nflavours = ["X"]', "gamma: flavour 'X' is not lower-case"),
        ("kind = 21", 'kind = 21\nflavours = ["beta"]', "gamma: beta has a flavour 'beta'"),
        ("kind = 21", 'kind = 21\nflavours = "x"', "gamma: 'flavours' is not a list of words"),
        ("thread = true", "thread = 1", "alpha: 'thread' is neither true nor false"),
        ('"switched"', '"skipped"', "alpha: 'skipped' of 'hooks' is none of switched,"),
        (
            'on_port = "port"',
            'on_port = "door"',
            "alpha: 'on_port' of 'programs_with' needs no fact",
        ),
        ('on_port = "port"', 'On = "port"', "alpha: 'On' of 'programs_with' is no name of C"),
        ('{ on_port = "port" }', "[]", "alpha: 'programs_with' is not a table"),
        ("port = 65535", "port = 0", "alpha: 'port' is no number from 1 to"),
        ("port = 65535", "port = 0x8000000000000000", "alpha: 'port' is no number from 1 to"),
        ("port = 65535", "po_rt = 1", "alpha: 'po_rt' of 'facts' is not lower-case words"),
        ("on_alpha =", "on-alpha =", "alpha: 'on-alpha' of 'programs' is no name of C"),
        ('on_alpha = ["socket"]', "on_alpha = []", "alpha: 'on_alpha' of 'programs' has no rung"),
        ('on_alpha = ["socket"]', 'on_alpha = ["agent"]', "'agent' of 'on_alpha' is none of"),
        ('alpha_texts = ["socket",', 'alpha_texts = ["none",', "'none' of 'alpha_texts' is none"),
        ("inflate =", "deflate =", "alpha: 'deflate' of 'needs' is none of inflate"),
        ("needs = {", "needs = 3 #", "alpha: 'needs' is not a table"),
        ('of = "alpha"', 'of = "omega"', "beta: 'of' names no server with a table of its own"),
        ('of = "alpha"', 'of = "beta"', "beta: 'of' names no server with a table of its own"),
        ('of = "alpha"', "of = 20", "beta: 'of' names no server with a table of its own"),
        ('of = "alpha"', 'of = "alpha"\nkind = 22', "beta: a table with 'of' has no other key"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in GOOD
    with pytest.raises(registry.RegistryError) as caught:
        registry.load(table(tmp_path, GOOD.replace(old, new, 1)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_table_at_all(tmp_path: Path) -> None:
    for text in ("[alpha\nkind = 1", "kind", '[alpha]\nkind = "'):
        with pytest.raises(registry.RegistryError):
            registry.load(table(tmp_path, text))
    (tmp_path / "registry.toml").write_bytes(b"\xff")
    with pytest.raises(registry.RegistryError):
        registry.load(tmp_path / "registry.toml")
    with pytest.raises(registry.RegistryError):
        registry.load(tmp_path / "absent.toml")


def test_the_header_has_a_list_of_each_kind(tmp_path: Path) -> None:
    made = registry_header.headers(registry.load(table(tmp_path, GOOD)))
    text = made["registry.h"]
    flat = text.replace(" \\\n\t", " ")
    assert "#define QJ_SERVERS(X) X(alpha, ALPHA, 20) X(gamma, GAMMA, 21)\n" in flat
    assert "#define QJ_DIALECTS(X) X(alpha, ALPHA, 200) X(alpha_id, ALPHA_ID, 201)\n" in flat
    assert 'X(alpha_begin, "alpha-begin", ALPHA) X(alpha_end, "alpha-end", ALPHA)\n' in flat
    assert "X(gamma, GAMMA, (1u << QJ_RUNG_NONE))\n" in flat
    both = "(1u << QJ_RUNG_SOCKET | 1u << QJ_RUNG_SYMBOL)"
    assert f"#define QJ_MAPS(X) X(alpha_texts, QJ_SERVER_ALPHA, {both})\n" in flat
    socket = "(1u << QJ_RUNG_SOCKET)"
    assert f"#define QJ_PROGRAMS(X) X(on_alpha, QJ_SERVER_ALPHA, {socket})\n" in flat
    with_port = "X(on_port, QJ_SERVER_ALPHA, QJ_ALPHA_PORT)"
    assert f"#define QJ_PROGRAMS_WITH(X) {with_port}\n" in flat
    assert "#define QJ_PROGRAM_NAMES(X) X(on_alpha) X(on_port)\n" in flat
    assert f"#define QJ_MAPS_WITH_TAGS(X) X(alpha_tags, QJ_SERVER_ALPHA, {socket})\n" in flat
    assert f"#define QJ_NEEDS(X) X(inflate, QJ_SERVER_ALPHA, {socket})\n" in flat
    assert "#define QJ_HOOKS_SWITCHED(X) X(alpha, ALPHA)\n" in flat
    assert "#define QJ_HOOKS_FORKED(X)\n" in flat
    assert "enum qj_alpha_fact {\n\tQJ_ALPHA_PORT = 0,\n\tQJ_ALPHA_TEXT_START = 1,\n};" in text
    assert "#define QJ_FACTS 2\n" in text
    assert 'X(QJ_SERVER_ALPHA, QJ_ALPHA_TEXT_START, "text-start", 0x7ULL)\n' in flat


def test_headers_include_what_a_server_has_for_the_core(tmp_path: Path) -> None:
    made = registry_header.headers(registry.load(table(tmp_path, GOOD)))
    assert '#include "alpha/thread.h"\n' in made["server_threads.h"]
    assert "#define QJ_THREADS(X) \\\n\tX(alpha, ALPHA)\n" in made["server_threads.h"]
    assert '#include "alpha/hooks.bpf.h"\n' in made["server_hooks.h"]
    assert not any("gamma/" in text or "beta/" in text for text in made.values())


def _made(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qjoule.servers.registry_header", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_build_fails_with_the_name_of_what_is_wrong(tmp_path: Path) -> None:
    bad = table(tmp_path, GOOD.replace("kind = 21", "kind = 20"))
    done = _made(str(tmp_path), str(bad))
    assert (done.returncode, done.stdout) == (1, "")
    assert list(tmp_path.glob("*.h")) == []
    assert done.stderr == "registry.toml: gamma: alpha has kind 20\n"


def test_the_build_makes_the_headers_of_the_table_beside_it(tmp_path: Path) -> None:
    done = _made(str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == registry_header.headers(registry.load())
    assert _made().returncode == _made("1", "2", "3").returncode == 2
