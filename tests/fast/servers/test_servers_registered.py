# SPDX-License-Identifier: Apache-2.0
"""The servers' folders and decoders agree with the registry."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from qjoule.contract import AttachMode
from qjoule.servers import decoding, registry
from qjoule.servers.decoding_types import Decoding
from qjoule.servers.registered import support_of, supported
from qjoule.servers.resolution import Resolution
from qjoule.servers.support import ServerSupport
from qjoule.servers.types import NO_PROTOCOL, Fact, Server


@pytest.fixture(params=registry.servers())
def support(request: pytest.FixtureRequest) -> ServerSupport:
    (found,) = (one for one in supported() if one.name == request.param)
    return found


def test_its_flavours_are_the_registrys(support: ServerSupport) -> None:
    assert set(support.flavours) == set(registry.servers()[support.name].flavours)
    assert all(support_of(flavour) is support for flavour in support.flavours)


def test_its_facts_are_the_registrys(support: ServerSupport) -> None:
    known = set(registry.servers()[support.name].facts)
    found = [*support.configured, *support.resolved]
    assert len(set(found)) == len(found)
    assert set(found) <= known
    assert set(support.symbol_only) <= set(found)


def test_its_roles_are_the_registrys(support: ServerSupport) -> None:
    name = f"qjoule.servers.{support.name}.find"
    roles = set(getattr(import_module(name), "Role", ())) if find_spec(name) else set()
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
    found = import_module(f"qjoule.servers.{server}.wire").DECODING
    assert isinstance(found, Decoding)
    return found


@pytest.mark.parametrize("server", list(registry.servers()))
def test_each_dialect_of_the_registry_has_one_decoder(server: str) -> None:
    table = registry.servers()[server]
    if table.of or not table.dialects:
        return
    found = _decoding(server)
    numbers = [*found.languages, *found.tag_readers, *found.told_ids]
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
