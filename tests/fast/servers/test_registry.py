# SPDX-License-Identifier: Apache-2.0
"""The registry of servers: its numbers, the header made of it, and a line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers import registry

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
attach_modes = ["socket", "symbol"]
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
attach_modes = ["none"]
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
    assert registry.attach_modes("generic") == ("none",)
    assert registry.server_of("mariadb").name == registry.server_of("mysql").name == "mysql"
    assert list(registry.flavours())[:3] == ["mariadb", "mysql", "postgres"]
    for unknown in ("oracle", "", "MYSQL"):
        for lookup in (registry.kind_of, registry.dialect, registry.roles, registry.attach_modes):
            with pytest.raises(KeyError):
                lookup(unknown)
    with pytest.raises(KeyError):
        registry.name_of(14)


def test_a_good_table(tmp_path: Path) -> None:
    alpha, beta, gamma = registry.load(table(tmp_path, GOOD))
    assert (alpha.kind, alpha.hooks) == (20, ("switched",))
    assert dict(alpha.facts) == {"port": 65535, "text-start": 7}
    assert (beta.name, beta.of, beta.kind, beta.maps) == ("beta", "alpha", 20, alpha.maps)
    assert (beta.flavours, gamma.flavours) == (("beta",), ("gamma",))
    assert (gamma.attach_modes, gamma.roles, dict(gamma.programs)) == (("none",), (), {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[alpha]", "[2alpha]", "2alpha: a server's name is lower-case letters and digits"),
        ("[gamma]", "[alpha]", "alpha"),  # by tomllib, with line and column
        ("kind = 20", "", "alpha: no 'kind'"),
        (
            'attach_modes = ["none"]',
            'attach_modes = ["usdt"]',
            "gamma: 'usdt' of 'attach_modes' is none of none,",
        ),
        ("kind = 21", "kind = 20", "gamma: alpha has kind 20"),
        ("kind = 21", "kind = 32", "gamma: kind is no number from 1 to 31"),
        ("kind = 21", "kind = 21\ncolour = 3", "gamma: unknown key 'colour'"),
        ("alpha = 200", "alpha = 9", "alpha: the tags has a dialect 9"),
        ("kind = 21", "kind = 21\ndialects = {g = 200}", "gamma: alpha has a dialect 200"),
        ('"alpha-end"', '"beta-end"', "alpha: role 'beta-end' is not alpha-... in lower case"),
        ("kind = 21", 'kind = 21\nflavours = ["beta"]', "gamma: beta has a flavour 'beta'"),
        ("port = 65535", "port = 0x8000000000000000", "alpha: 'port' is no number from 1 to"),
        ("on_alpha =", "on-alpha =", "alpha: 'on-alpha' of 'programs' is no name of C"),
        ('on_alpha = ["socket"]', 'on_alpha = ["agent"]', "'agent' of 'on_alpha' is none of"),
        ('of = "alpha"', 'of = "omega"', "beta: 'of' names no server with a table of its own"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(registry.RegistryError) as caught:
        registry.load(table(tmp_path, GOOD.replace(old, new, 1)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
