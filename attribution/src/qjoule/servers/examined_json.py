# SPDX-License-Identifier: Apache-2.0
"""Parses the result of an examination, which the examining process sends as JSON.

The examining process has parsed untrusted bytes and may be compromised by them. So the reader
trusts nothing: every field must exist, have its type, be within bounds, and be plausible for such a
server. Messages are never parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from qjoule.servers import probe_site
from qjoule.servers.access import FileIdentity
from qjoule.servers.elf import Symbol
from qjoule.servers.probe_site import ProbeSite
from qjoule.servers.registered import support_of
from qjoule.servers.registry import flavours, servers
from qjoule.servers.resolution import OFFSET_MAX, Probe, Resolution
from qjoule.servers.strict_json import (
    InvalidDocument,
    flag,
    hexadecimal,
    many,
    number,
    one_of,
    or_none,
    parse,
    struct,
    text,
)
from qjoule.servers.types import (
    INODES_MAX,
    LISTED_MAX,
    NO_PROTOCOL,
    PATH_MAX,
    SOCKET_PATH_MAX,
    SOCKETS_MAX,
    Examined,
    Fact,
    Restart,
)
from qjoule.shapes.safe_text import WORDS_MAX

DOCUMENT_MAX = 1 << 20  #: bytes
_PROBES_MAX, _NOTES_MAX, _FACTS_MAX = 8, 16, 64
_WORDS_MAX, _WORD_MAX = 4096, 64
_CODE_MAX = 15  #: longest instruction in bytes: Intel SDM, volume 2, 2.3.11
_U16, _U32, _U63, _U64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1
_COSTS = (
    probe_site.NOP5,
    probe_site.EMULATED_JUMP,
    probe_site.EMULATED_PUSH,
    probe_site.SINGLE_STEPPED,
)


def examined_from_json(document: bytes) -> Examined:
    """Parses the result of an examination.

    Raises:
        InvalidDocument: the document is not what `Examined.to_json` produces; one line, with the
            place.
    """
    value = parse(document, DOCUMENT_MAX)
    examined: Examined = _EXAMINED(value, "what was found")
    _check(examined)
    return examined


def _check(examined: Examined) -> None:
    """Checks fields against each other."""
    flavour, resolution = examined.flavour, examined.resolution
    if flavour is None:
        _expect(examined == Examined(problem=examined.problem), "no server has properties")
        return
    _expect(not examined.problem, "a server has a problem")
    _expect(examined.exe is not None or not examined.handle, "handle")
    support = support_of(flavour)
    limits = servers()[support.name].facts
    _expect(_are_facts(examined.facts, limits, support.configured), "facts")
    if resolution is None:
        _expect(flavour == NO_PROTOCOL, "no resolution")
        return
    _expect(flavour != NO_PROTOCOL, "resolution of a generic server")
    _expect(support.has_library or not (resolution.library or resolution.handle), "library")
    _expect(_are_facts(resolution.facts, limits, support.resolved), "facts of its executable")
    if examined.exe is not None and not support.has_library:
        _expect(resolution.file[1] == examined.exe.inode, "file")
    probes = (
        *(*resolution.boundary, *resolution.parallel),
        *(*resolution.children, *resolution.names, *resolution.ids),
    )
    roles = [probe.role for probe in probes]
    _expect(len(set(roles)) == len(roles), "a role comes twice")
    _expect(set(roles) <= set(servers()[support.name].roles), "a role of others")


def _are_facts(facts: Mapping[str, int], limits: Mapping[str, int], names: Iterable[str]) -> bool:
    """Returns true if these are all or none of the named facts, and none exceeds its limit."""
    return not facts or (
        set(facts) == set(names) and all(facts[name] <= limits[name] for name in facts)
    )


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise InvalidDocument(f"what was found makes no sense: {what}")


def _cost(value: Any, where: str) -> probe_site.SiteCost:
    for cost in _COSTS:
        if type(value) is dict and value == asdict(cost):
            return cost
    raise InvalidDocument(f"{where} is no cost that is known")


def _flavour(value: Any, where: str) -> str:
    flavour: str = one_of(*flavours())(value, where)
    return flavour


def _role(value: Any, where: str) -> str:
    role: str = one_of(*(role for server in servers().values() for role in server.roles))(
        value, where
    )
    return role


def _facts(value: Any, where: str) -> dict[str, int]:
    """Reads numbers by name. `_check` decides which names are allowed."""
    if type(value) is not dict or len(value) > _FACTS_MAX:
        raise InvalidDocument(f"{where} is no list of numbers by name")
    return {name: number(0, _U64)(content, where) for name, content in value.items()}


def _vocabulary(value: Any, where: str) -> dict[str, int]:
    """Reads numbers by word."""
    if type(value) is not dict or len(value) > _WORDS_MAX:
        raise InvalidDocument(f"{where} is no list of words")
    word, most = text(_WORD_MAX), number(0, _U32)
    return {word(name, where): most(content, where) for name, content in value.items()}


def _file_key(value: Any, where: str) -> tuple[str | int, int]:
    if type(value) is not list or len(value) != 2:
        raise InvalidDocument(f"{where} is no file")
    if type(value[0]) is str:
        first: str | int = hexadecimal(64)(value[0], where).hex()
    else:
        first = number(0, _U64)(value[0], where)
    return first, number(0, _U64)(value[1], where)


_SENTENCE = text(WORDS_MAX, single_line=True)
_OFFSET = number(0, OFFSET_MAX - 1)
_FACT = struct(Fact, value=or_none(flag), source=_SENTENCE)
_RESTART = struct(
    Restart,
    how=one_of("executable", "arguments", "never"),
    why=_SENTENCE,
    arguments=number(0, _U64),
)
_IDENTITY = struct(
    FileIdentity,
    device=number(0, _U64),
    inode=number(0, _U64),
    size=number(0, _U63),
    mtime_ns=number(-_U63, _U63),
    ctime_ns=number(-_U63, _U63),
    uid=number(0, _U32),
    mode=number(0, _U32),
)
_PROBE = struct(
    Probe,
    role=_role,
    symbol=struct(
        Symbol,
        name=text(1024),
        vaddr=number(0, _U64),
        size=number(0, _U64),
        table=one_of(".dynsym", ".symtab", ".gnu_debugdata"),
    ),
    site=struct(
        ProbeSite,
        offset=_OFFSET,
        instruction=_SENTENCE,
        cost=_cost,
        reason=_SENTENCE,
        code=hexadecimal(_CODE_MAX),
    ),
)
_PROBES = many(_PROBE, _PROBES_MAX)
_RESOLUTION = struct(
    Resolution,
    file=_file_key,
    boundary=_PROBES,
    parallel=_PROBES,
    children=_PROBES,
    no_children=_SENTENCE,
    names=_PROBES,
    no_names=_SENTENCE,
    ids=_PROBES,
    no_ids=_SENTENCE,
    facts=_facts,
    symbol_notes=many(_SENTENCE, _NOTES_MAX),
    library=text(PATH_MAX),
    handle=number(0, _U32),
    problem=_SENTENCE,
    notes=many(_SENTENCE, _NOTES_MAX),
)
_PORTS = many(number(0, _U16), LISTED_MAX)
_EXAMINED = struct(
    Examined,
    flavour=or_none(_flavour),
    version=text(64, single_line=True),
    problem=_SENTENCE,
    exe=or_none(_IDENTITY),
    handle=number(0, _U32),
    exe_path=text(PATH_MAX),
    runs_as=text(64, single_line=True),
    ports=_PORTS,
    sockets=many(text(SOCKET_PATH_MAX), SOCKETS_MAX),
    udp_ports=_PORTS,
    inodes=lambda value, where: frozenset(many(number(0, _U64), INODES_MAX)(value, where)),
    encryption=_FACT,
    thread_pool=_FACT,
    compression=_FACT,
    restart=_RESTART,
    facts=_facts,
    name=text(64),
    cpu_ticks=number(0, _U64),
    resolution=or_none(_RESOLUTION),
    vocabulary=_vocabulary,
    no_vocabulary=_SENTENCE,
)
