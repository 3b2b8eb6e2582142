# SPDX-License-Identifier: Apache-2.0
"""The exports of the servers' folders match the registry; shared code uses them only through it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import qjoule.servers
from qjoule.contract import Rung
from qjoule.servers import registry
from qjoule.servers.probing import within_bounds
from qjoule.servers.registered import runtimes, support_of, supported
from qjoule.servers.resolution import Resolution
from qjoule.servers.signatures import CannotResolve
from qjoule.servers.support import ServerSupport
from qjoule.servers.types import NO_PROTOCOL, Fact, Server

SERVERS = Path(qjoule.servers.__file__).parent


@pytest.fixture(params=registry.servers())
def support(request: pytest.FixtureRequest) -> ServerSupport:
    (found,) = (one for one in supported() if one.name == request.param)
    return found


def test_every_server_of_the_registry_has_its_folder() -> None:
    assert [one.name for one in supported()] == list(registry.servers())


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
    module = f"qjoule.servers.{support.name}.signatures"
    has_own = find_spec(module) is not None
    roles = set(import_module(module).Role) if has_own else set()
    server = registry.servers()[support.name]
    assert roles == (set() if server.of else set(server.roles))


def test_it_is_found_in_one_way(support: ServerSupport) -> None:
    """By its executable, or by a runtime's arguments; a generic one only on request."""
    assert bool(support.executables) + bool(support.runtime) == (support.name != NO_PROTOCOL)
    assert not support.runtime or support.runtime in runtimes()
    assert not support.installed or support.executables


def test_what_is_not_of_the_registry_is_unknown() -> None:
    with pytest.raises(KeyError):
        support_of("oracle")


def test_a_server_is_planned_with_its_own_facts() -> None:
    facts = {"port": 9042, "send-buffer": 1, "idle": 2}
    resolution = Resolution((1, 2), facts=facts)
    postgres, cassandra, none = map(support_of, ("postgres", "cassandra", NO_PROTOCOL))
    server = Server(
        *(1, "postgres", "", Path("/"), "/", (1, 2), (), (), (), Fact(None, ""), Fact(None, "")),
        facts={"port": 9142},
    )
    assert postgres.facts(server, resolution, Rung.SOCKET) == {"send-buffer": 1}
    assert postgres.facts(server, resolution, Rung.SYMBOL) == {"send-buffer": 1, "idle": 2}
    assert cassandra.facts(server, Resolution((1, 2)), Rung.AGENT) == {"port": 9142}
    assert none.facts(server, resolution, Rung.NONE) == {}


def test_numbers_have_the_registrys_bounds() -> None:
    assert within_bounds("postgres", {"idle": 255}) == {"idle": 255}
    with pytest.raises(CannotResolve, match="its idle is 0x100, more than 0xff"):
        within_bounds("postgres", {"idle": 256})


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


@pytest.mark.parametrize("path", sorted(SERVERS.glob("*.py")), ids=lambda path: str(path.name))
def test_shared_modules_import_no_servers_folder(path: Path) -> None:
    folders = {f"qjoule.servers.{name}" for name in registry.servers()}
    assert not {name for name in imported(path) if ".".join(name.split(".")[:3]) in folders}
