# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the registry of servers, `registry.toml`, and looks things up in it.

A mistake in it is reported as one line with the server's name. Only the standard library is needed,
because `registry_header` makes C headers of it before anything is installed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

TABLE = Path(__file__).with_name("registry.toml")

#: Names in `enum qj_attach_mode` that a plan may contain.
ATTACH_MODES = ("none", "socket", "symbol", "agent", "statistical")
HOOKS = ("switched", "blocked", "labelled", "forked", "executed", "exited", "started", "sampled")
NEEDS = ("inflate",)
#: Flags of background rows (docs/model.md). Their joules belong to no query, because it is unknown
#: which of several queries caused them, or how much later.
CAUSES = ("serves_queries", "caused_by_reads", "caused_by_writes")
#: Dialects of no server: key='value' pairs from any server's client.
SHARED_DIALECTS: Mapping[str, int] = MappingProxyType({"tags": 9, "unseen": 14})

_KIND_MAX = 31  # a bit of a 32 bit mask
_DIALECT_MAX = 255  # a byte of struct qj_text
_FACT_MAX = 2**63 - 1
_SERVER = re.compile(r"[a-z][a-z0-9]*")
_DASHED = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_C_NAME = re.compile(r"[a-z][a-z0-9_]*")


class RegistryError(ValueError):
    """The table is invalid; the message is one line that names the server."""


@dataclass(frozen=True)
class Server:
    """One server's table; `registry.toml` explains the fields."""

    name: str
    kind: int
    flavours: tuple[str, ...]
    attach_modes: tuple[str, ...]
    dialects: Mapping[str, int]
    roles: tuple[str, ...]
    hooks: tuple[str, ...]
    thread: bool
    facts: Mapping[str, int]  #: the upper limit of each
    programs: Mapping[str, tuple[str, ...]]
    programs_with: Mapping[str, str]  #: the fact that each needs
    maps: Mapping[str, tuple[str, ...]]
    maps_with_tags: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, tuple[str, ...]]
    causes: Mapping[str, tuple[str, ...]]
    of: str = ""  #: the server whose table this one shares; "": none


@cache
def servers() -> Mapping[str, Server]:
    """Returns all servers by name, in the order of `registry.toml`."""
    return MappingProxyType({server.name: server for server in load()})


@cache
def dialects() -> Mapping[str, int]:
    """Returns the numbers of dialects in traces, by name, including those of no server."""
    of_servers = {name: n for server in servers().values() for name, n in server.dialects.items()}
    return MappingProxyType({**of_servers, **SHARED_DIALECTS})


@cache
def flavours() -> Mapping[str, Server]:
    """Returns all products with the server of each, in the order of `registry.toml`."""
    return MappingProxyType(
        {flavour: server for server in servers().values() for flavour in server.flavours}
    )


def server_of(flavour: str) -> Server:
    """Returns the server that a product belongs to. Raises KeyError for an unknown product."""
    return flavours()[flavour]


def kind_of(name: str) -> int:
    """Returns the number that a server has in traces; 0 for "none". Raises KeyError."""
    return 0 if name == "none" else servers()[name].kind


def name_of(kind: int) -> str:
    """Returns the server with this number; "none" for 0. Raises KeyError."""
    if kind == 0:
        return "none"
    for server in servers().values():
        if server.kind == kind and not server.of:
            return server.name
    raise KeyError(kind)


def dialect(name: str) -> int:
    """Returns the number of a dialect in traces. Raises KeyError for an unknown dialect."""
    return dialects()[name]


def roles(name: str) -> tuple[str, ...]:
    """Returns the probe roles of a server. Raises KeyError for an unknown name."""
    return servers()[name].roles


def attach_modes(name: str) -> tuple[str, ...]:
    """Returns the attach modes that a plan may contain for a server. Raises KeyError."""
    return servers()[name].attach_modes


@cache
def causes_of(role: str) -> tuple[str, ...]:
    """Returns the flags of a background row: which activity of queries causes this role's work."""
    causes = [cause for server in servers().values() for cause in server.causes.items()]
    return tuple(dict.fromkeys(cause for cause, prefixes in causes if role.startswith(prefixes)))


def load(path: Path = TABLE) -> tuple[Server, ...]:
    """Reads and checks the servers of a table, in its order. Raises RegistryError."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RegistryError(str(error)) from None
    servers = [
        _server(name, table) for name, table in tables.items() if not _shares_table(name, table)
    ]
    by_name = {server.name: server for server in servers}
    _check_together(servers)
    every = tuple(
        by_name[name] if name in by_name else _with_shared_table(name, table, by_name)
        for name, table in tables.items()
    )
    _check_flavours(every)
    return every


def _shares_table(name: str, table: object) -> bool:
    if not _SERVER.fullmatch(name) or name == "none":
        raise RegistryError(f"{name}: a server's name is lower-case letters and digits, not 'none'")
    if not isinstance(table, dict):
        raise RegistryError(f"{name}: not a table")
    return "of" in table


def _with_shared_table(name: str, table: dict[str, Any], by_name: Mapping[str, Server]) -> Server:
    if set(table) != {"of"}:
        raise RegistryError(f"{name}: a table with 'of' has no other key")
    if not isinstance(table["of"], str) or table["of"] not in by_name:
        raise RegistryError(f"{name}: 'of' names no server with a table of its own")
    return replace(by_name[table["of"]], name=name, of=table["of"], flavours=(name,))


def _server(name: str, table: dict[str, Any]) -> Server:
    for key in table:
        if key not in Server.__dataclass_fields__ or key == "name":
            raise RegistryError(f"{name}: unknown key '{key}'")
    for key in ("kind", "attach_modes"):
        if key not in table:
            raise RegistryError(f"{name}: no '{key}'")
    attach_modes = _words(name, "attach_modes", table["attach_modes"], ATTACH_MODES)
    if not attach_modes:
        raise RegistryError(f"{name}: 'attach_modes' is empty")
    return Server(
        name,
        kind=_number(name, "kind", table["kind"], 1, _KIND_MAX),
        flavours=_flavours(name, table),
        attach_modes=attach_modes,
        dialects=_numbers(name, "dialects", table.get("dialects", {}), _DIALECT_MAX),
        roles=_roles(name, table),
        hooks=_words(name, "hooks", table.get("hooks", []), HOOKS),
        thread=_is_true(name, table.get("thread", False)),
        facts=_numbers(name, "facts", table.get("facts", {}), _FACT_MAX),
        programs=_by_attach_mode(name, "programs", table, attach_modes),
        programs_with=_by_fact(name, "programs_with", table),
        maps=_by_attach_mode(name, "maps", table, attach_modes),
        maps_with_tags=_by_attach_mode(name, "maps_with_tags", table, attach_modes),
        needs=_by_attach_mode(name, "needs", table, attach_modes, NEEDS),
        causes=_causes(name, table.get("causes", {})),
    )


def _flavours(name: str, table: dict[str, Any]) -> tuple[str, ...]:
    flavours = _words(name, "flavours", table.get("flavours", [name]))
    for flavour in flavours:
        if not _SERVER.fullmatch(flavour):
            raise RegistryError(f"{name}: flavour '{flavour}' is not lower-case letters and digits")
    return flavours


def _roles(name: str, table: dict[str, Any]) -> tuple[str, ...]:
    roles = _words(name, "roles", table.get("roles", []))
    for role in roles:
        if not role.startswith(f"{name}-") or not _DASHED.fullmatch(role):
            raise RegistryError(f"{name}: role '{role}' is not {name}-... in lower case")
    return roles


def _is_true(name: str, value: object) -> bool:
    if type(value) is not bool:
        raise RegistryError(f"{name}: 'thread' is neither true nor false")
    return value


def _number(name: str, what: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise RegistryError(f"{name}: {what} is no number from {least} to {most}")
    return value


def _numbers(name: str, key: str, table: object, most: int) -> Mapping[str, int]:
    if not isinstance(table, dict):
        raise RegistryError(f"{name}: '{key}' is not a table")
    for word in table:
        if not _DASHED.fullmatch(word):
            raise RegistryError(f"{name}: '{word}' of '{key}' is not lower-case words with '-'")
    numbers = {word: _number(name, f"'{word}'", n, 1, most) for word, n in table.items()}
    return MappingProxyType(numbers)


def _words(
    name: str, key: str, value: object, allowed: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise RegistryError(f"{name}: '{key}' is not a list of words")
    for i, word in enumerate(value):
        if allowed is not None and word not in allowed:
            raise RegistryError(f"{name}: '{word}' of '{key}' is none of {', '.join(allowed)}")
        if word in value[:i]:
            raise RegistryError(f"{name}: '{word}' twice in '{key}'")
    return tuple(value)


def _by_attach_mode(
    name: str,
    key: str,
    table: dict[str, Any],
    attach_modes: tuple[str, ...],
    allowed: tuple[str, ...] | None = None,
) -> Mapping[str, tuple[str, ...]]:
    """Reads a table of names to the server's attach modes that need them."""
    names = table.get(key, {})
    if not isinstance(names, dict):
        raise RegistryError(f"{name}: '{key}' is not a table")
    for word in names:
        if allowed is not None and word not in allowed:
            raise RegistryError(f"{name}: '{word}' of '{key}' is none of {', '.join(allowed)}")
        if not _C_NAME.fullmatch(word):
            raise RegistryError(f"{name}: '{word}' of '{key}' is no name of C in lower case")
        if not names[word]:
            raise RegistryError(f"{name}: '{word}' of '{key}' has no attach mode")
    return MappingProxyType({word: _words(name, word, names[word], attach_modes) for word in names})


def _causes(name: str, table: object) -> Mapping[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        raise RegistryError(f"{name}: 'causes' is not a table")
    causes = _words(name, "causes", list(table), CAUSES)
    return MappingProxyType({cause: _words(name, cause, table[cause]) for cause in causes})


def _by_fact(name: str, key: str, table: dict[str, Any]) -> Mapping[str, str]:
    """Reads a table of names to the server's facts that need them."""
    names = table.get(key, {})
    if not isinstance(names, dict):
        raise RegistryError(f"{name}: '{key}' is not a table")
    for word, fact in names.items():
        if not _C_NAME.fullmatch(word):
            raise RegistryError(f"{name}: '{word}' of '{key}' is no name of C in lower case")
        if fact not in table.get("facts", {}):
            raise RegistryError(f"{name}: '{word}' of '{key}' needs no fact of this server")
    return MappingProxyType(dict(names))


def _check_together(servers: list[Server]) -> None:
    """Checks that no two servers share a number or dialect, and no two names are equal in C."""
    kinds: dict[int, str] = {}
    numbers = {number: f"the {name}" for name, number in SHARED_DIALECTS.items()}
    names = {c_name(name): f"the {name}" for name in SHARED_DIALECTS}
    for server in servers:
        if server.kind in kinds:
            raise RegistryError(f"{server.name}: {kinds[server.kind]} has kind {server.kind}")
        kinds[server.kind] = server.name
        for dialect, number in server.dialects.items():
            if number in numbers:
                owner = numbers[number]
                raise RegistryError(f"{server.name}: {owner} has a dialect {number}")
            if c_name(dialect) in names:
                owner = names[c_name(dialect)]
                raise RegistryError(f"{server.name}: {owner} has a dialect '{dialect}'")
            numbers[number] = names[c_name(dialect)] = server.name


def _check_flavours(every: tuple[Server, ...]) -> None:
    """Checks that no product belongs to two servers."""
    owners: dict[str, str] = {}
    for server in every:
        for flavour in server.flavours:
            if (owner := owners.setdefault(flavour, server.name)) != server.name:
                raise RegistryError(f"{server.name}: {owner} has a flavour '{flavour}'")


def c_name(name: str) -> str:
    """Returns the name of a role, dialect or fact in C."""
    return name.replace("-", "_")
