# SPDX-License-Identifier: Apache-2.0
"""The registry of servers: its numbers, the header made of it, and a line for each mistake. Also:
servers' folders agree with it, and pages with the measured figures.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers import cost_page, decoding, registry, support_table
from qjoule.servers.decoding_types import Decoding
from qjoule.servers.measured import COSTS, MeasuredCost, known_costs
from qjoule.servers.mysql.support import SIGNATURES
from qjoule.servers.registered import documented, module_of, support_of, supported
from qjoule.servers.registry import flavours
from qjoule.servers.resolution import Resolution
from qjoule.servers.support import ServerSupport
from qjoule.servers.types import NO_PROTOCOL, Fact, Server

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
causes = { serves_queries = ["io-"] }

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
        ("serves_queries", "serves", "alpha: 'serves' of 'causes' is none of serves_queries,"),
        ('= ["io-"]', "= 1", "alpha: 'serves_queries' is not a list of words"),
        ('{ serves_queries = ["io-"] }', "1", "alpha: 'causes' is not a table"),
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


# ---- the servers' folders and decoders agree with the registry -----------------------------------


@pytest.fixture(params=registry.servers())
def support(request: pytest.FixtureRequest) -> ServerSupport:
    (support_,) = (
        each_support for each_support in supported() if each_support.name == request.param
    )
    return support_


def test_its_flavours_are_the_registrys(support: ServerSupport) -> None:
    assert set(support.flavours) == set(registry.servers()[support.name].flavours)
    assert all(support_of(flavour) is support for flavour in support.flavours)


def test_its_facts_are_the_registrys(support: ServerSupport) -> None:
    registered = set(registry.servers()[support.name].facts)
    facts = [*support.configured, *support.resolved]
    assert len(set(facts)) == len(facts)
    assert set(facts) <= registered
    assert set(support.symbol_only) <= set(facts)


def test_its_roles_are_the_registrys(support: ServerSupport) -> None:
    module = module_of(support.name)
    with suppress(ModuleNotFoundError):
        module = import_module(f"{module.__package__}.find")
    roles = set(getattr(module, "Role", ()))
    server = registry.servers()[support.name]
    assert roles == (set() if server.of else set(server.roles))


def test_a_server_is_planned_with_its_own_facts() -> None:
    facts = {"port": 9042, "send-buffer": 1, "idle": 2}
    resolution = Resolution((1, 2), facts=facts)
    postgres, cassandra, none = map(support_of, ("postgres", "cassandra", NO_PROTOCOL))
    server = Server(
        *(1, "postgres", "", Path("/"), "/", (1, 2), (), (), (), Fact(None, ""), Fact(None, "")),
        facts={"port": 9142},
    )
    assert postgres.facts(server, resolution, AttachMode.SOCKET) == {"send-buffer": 1}
    assert postgres.facts(server, resolution, AttachMode.SYMBOL) == {"send-buffer": 1, "idle": 2}
    assert cassandra.facts(server, Resolution((1, 2)), AttachMode.AGENT) == {"port": 9142}
    assert none.facts(server, resolution, AttachMode.NONE) == {}


def _decoding(server: str) -> Decoding:
    decoder = import_module(f"qjoule.servers.{server}.wire").DECODING
    assert isinstance(decoder, Decoding)
    return decoder


@pytest.mark.parametrize("server", list(registry.servers()))
def test_each_dialect_of_the_registry_has_one_decoder(server: str) -> None:
    table = registry.servers()[server]
    if table.of or not table.dialects:
        return
    decoder = _decoding(server)
    numbers = [*decoder.languages, *decoder.tag_readers, *decoder.reported_ids]
    assert sorted(numbers) == sorted(table.dialects.values())


def test_references_of_all_servers_are_one() -> None:
    references = decoding.AllReferences()
    cql, batch = registry.dialect("cql"), registry.dialect("cql-batch")
    references.learn(7, cql, "select ?")
    text = (7).to_bytes(8, "little")
    assert not references.waits(text, batch)
    assert references.statement(text, batch) == (b"BEGIN BATCH; select ?; APPLY BATCH", cql)
    references.forget(7)
    assert b"not seen" in references.statement(text, batch)[0]
    assert references.statement(b"as it is", cql) == (b"as it is", cql)


# --------------------------------------------------------------------------------------------------
#
# docs/servers.md and docs/cost.md show the measured figures, which are read with care.

DOCS = Path(__file__).parents[3] / "docs"
COST = MeasuredCost(
    *("postgres", "15.14", "symbol", 2345, 2100, 2600, 3456, 3210, 3800),
    *("SELECT 1", "a CPU", "6.18.5", "2026-11-21"),
)


def test_the_pages_are_up_to_date() -> None:
    assert (DOCS / "servers.md").read_text("utf-8") == support_table.document(), "run 'make docs'"
    assert (DOCS / "cost.md").read_text("utf-8") == cost_page.document(), "run 'make docs'"


def test_every_server_and_signature_is_listed() -> None:
    page = support_table.document()
    assert {server.flavour for server in documented()} == set(flavours())
    assert all(f"\n| {server.name} | " in page for server in documented())
    assert all(server.tested for server in documented() if server.flavour != "generic")
    assert all(page.count(f"`{name}`") == 1 for _, name, _ in SIGNATURES)
    assert {cost.server for cost in known_costs().values()} <= set(flavours())


def test_a_measured_cost_is_only_in_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_table, "known_costs", lambda: {COST.key: COST})
    shown = "2.35 µs (2.10 to 2.60), whole 3.46 µs (3.21 to 3.80)"
    *rows, last = [line for line in support_table.document().splitlines() if shown in line]
    assert [row.split(" | ")[2] for row in rows] == ["TLS possible", "configuration unknown"]
    assert all(row.startswith("| PostgreSQL | 15, 17, 18 | ") for row in rows)
    assert last.endswith("| `SELECT 1` | a CPU, Linux 6.18.5, 2026-11-21 |")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2345", "fast", "row 1: invalid literal"),
        ("6.18.5", "", "row 1: not as many values"),
        ("cost_ns", "cost", "its columns are not"),
    ],
)
def test_a_damaged_file_is_an_error(old: str, new: str, message: str) -> None:
    text = COSTS.write([COST])
    assert COSTS.read(text) == {COST.key: COST}
    with pytest.raises(QjouleError, match=message):
        COSTS.read(text.replace(old, new))
