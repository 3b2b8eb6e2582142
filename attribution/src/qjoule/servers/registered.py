# SPDX-License-Identifier: Apache-2.0
"""The servers that qjoule knows: the exports of the folders of all servers in registry.toml.

The first call loads all of them. That must happen before a process gives up the right to open files
(`examine.prepare`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from qjoule.servers.registry import servers
from qjoule.servers.support import ServerSupport


@cache
def supported() -> tuple[ServerSupport, ...]:
    """All servers, in the order of registry.toml."""
    return tuple(_support(name) for name in servers())


@cache
def runtimes() -> frozenset[str]:
    """Names of the programs that execute servers which are not executables themselves."""
    return frozenset(support.runtime for support in supported() if support.runtime)


def support_of(flavour: str) -> ServerSupport:
    """The server that this product is.

    Raises:
        KeyError: there is no such flavour.
    """
    return _by_flavour()[flavour]


def system_name(flavour: str) -> str:
    """OpenTelemetry's `db.system.name` of a product; of an unknown one its own name."""
    support = _by_flavour().get(flavour)
    return (support.system if support else "") or flavour


@cache
def _by_flavour() -> Mapping[str, ServerSupport]:
    return {flavour: support for support in supported() for flavour in support.flavours}


def _support(name: str) -> ServerSupport:
    support = import_module(f"qjoule.servers.{name}.support").SUPPORT
    assert isinstance(support, ServerSupport)
    assert support.name == name
    return support
