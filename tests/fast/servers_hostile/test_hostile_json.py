# SPDX-License-Identifier: Apache-2.0
"""The result that an examination hands over: unchanged if honest, refused otherwise."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qjoule.errors import QjouleError
from qjoule.servers.access import FileIdentity
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.elf import Symbol
from qjoule.servers.examine import examine
from qjoule.servers.examined_json import DOCUMENT_MAX, examined_from_json
from qjoule.servers.postgres.find import BackendStates
from qjoule.servers.postgres.memory import BackendMemory
from qjoule.servers.postgres.plan_nodes import NODE_FACTS
from qjoule.servers.postgres.statements import PreparedStatements, QueryIds
from qjoule.servers.probe_site import EMULATED_PUSH, ProbeSite
from qjoule.servers.resolution import Probe, Resolution
from qjoule.servers.types import Examined, Fact, Restart
from qjoule.servers.voltdb.support import HeapLayout
from servers.fake_proc import FakeProc
from servers.hostile import facts_of

EXE = FileIdentity(1, 77, 4096, -1, 2, 0, 0o100755)


def probe(role: str) -> Probe:
    site = ProbeSite(0x1234, "push rbp", EMULATED_PUSH, "push rbp: emulated", b"\x55")
    return Probe(role, Symbol("f", 0x401234, 16, ".dynsym"), site)


POSTGRES = Examined(
    "postgres",
    "15.20",
    exe=EXE,
    handle=3,
    exe_path="/usr/lib/postgresql/15/bin/postgres\udcff",
    ports=(5432,),
    sockets=("/run/postgresql/.s.PGSQL.5432",),
    inodes=frozenset({5, 4}),
    encryption=Fact(None, "not known"),
    thread_pool=Fact(False, "one process per connection"),
    resolution=Resolution(
        ("ab12", 77),
        boundary=(probe("postgres-activity"), probe("postgres-portal-run")),
        parallel=(probe("postgres-join-leader"),),
        facts={
            **BackendStates(1, 2, 3, 4, 5).facts(),
            **{"send-buffer": 0x100, "read-at": 0x108, "read-end": 0x10C, "conforming": 0x200},
            "wait-event": 0x208,
            **BackendMemory(1, 2, 3, 4, 5).facts(),
            **PreparedStatements(1, 2, 3, 4).facts(),
            **QueryIds(88, 8).facts(),
            **dict.fromkeys(NODE_FACTS, 0x300),
        },
        symbol_notes=("a",),
        notes=("b", "c"),
    ),
)
HEAP = HeapLayout(0x800000000, 3, 4, 104, 108, 20, 16, 12, 16).facts()
VOLTDB = Examined(
    "voltdb",
    "10.0",
    exe=EXE,
    restart=Restart("arguments", "why", (1 << 64) - 1),
    resolution=Resolution(
        (5, 6),
        boundary=(probe("voltdb-begin"), probe("voltdb-end")),
        library="/proc/1/map_files/7f00-7f10",
        handle=9,
        facts=HEAP,
    ),
)
GENERIC = Examined("generic", name="java", cpu_ticks=70, udp_ports=(53,))
HONEST = {
    "postgres": POSTGRES,
    "voltdb": VOLTDB,
    "generic": GENERIC,
    "none": Examined(),
    "problem": Examined(problem="it cannot be read"),
}


def again(examined: Examined) -> Examined:
    return examined_from_json(json.dumps(examined.to_json()).encode())


@pytest.mark.parametrize("name", ["mysqld", "postgres", "java"])
def test_an_honest_result_comes_through(name: str, toys: dict[str, Path], fake: FakeProc) -> None:
    for result in HONEST.values():
        assert again(result) == result
    entry = fake.add(100, str(toys[name]), cwd="/data")
    fake.listen(100, port=3306, unix="/run/x.sock")
    for generic in (False, True):
        facts = replace(facts_of(toys[name], pid=100), any_protocol=generic)
        result = examine(DirectAccess(entry, fake.host), facts)
        assert again(result) == result
    assert again(Examined(problem="a\n\0 b" + "c" * 5000)).problem == ("a b" + "c" * 997)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*path, number))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


STRANGE: list[Any] = [[], {}, [[]], {"a": 1}, True, -1, 1 << 48, 1 << 64, -(1 << 70)]
STRANGE += ["\0", "x" * 5000, "\ud800", "a\nb "]


@pytest.mark.parametrize("name", ["postgres", "voltdb", "generic"])
def test_a_strange_value_anywhere_is_refused_or_of_its_type(name: str) -> None:
    """Where any text or number is valid, some of these are accepted. All else is refused."""
    honest_document = HONEST[name].to_json()
    refused = taken = 0
    for path in places(honest_document):
        for strange in STRANGE:
            document = copy.deepcopy(honest_document)
            if path:
                at(document, path[:-1])[path[-1]] = strange
            else:
                document = strange
            try:
                examined = examined_from_json(json.dumps(document).encode())
            except QjouleError as error:
                refused += 1
                assert "\n" not in str(error)
                assert len(str(error)) < 300
            else:
                taken += 1
                assert again(examined) == examined
                honest = at(honest_document, path)
                either = path == ("resolution", "file", 0)  # a build id, or a device
                assert type(strange) is type(honest) or honest is None or either
    assert refused > 10 * taken


@pytest.mark.parametrize("name", ["postgres", "voltdb"])
def test_every_field_has_to_be_there_and_no_other(name: str) -> None:
    honest_document = HONEST[name].to_json()
    for path in places(honest_document):
        # The words of a vocabulary are the executable's own: any are allowed, within bounds.
        if not isinstance(at(honest_document, path), dict) or path == ("vocabulary",):
            continue
        for key in (*at(honest_document, path), "more"):
            document = copy.deepcopy(honest_document)
            if key == "more":
                at(document, path)[key] = 1
            else:
                del at(document, path)[key]
            with pytest.raises(QjouleError):
                examined_from_json(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("field", "fits", "refused"),
    [("offset", (1 << 48) - 1, 1 << 48), ("code", "00" * 15, "00" * 16), ("code", "00", "5")],
)
def test_the_site_of_a_probe_is_bounded(field: str, fits: Any, refused: Any) -> None:
    document = POSTGRES.to_json()
    site = document["resolution"]["boundary"][0]["site"]
    site[field] = fits
    assert examined_from_json(json.dumps(document).encode())
    site[field] = refused
    with pytest.raises(QjouleError, match=field):
        examined_from_json(json.dumps(document).encode())


def changed(examined: Examined, **changes: Any) -> Examined:
    assert examined.resolution is not None
    return replace(examined, resolution=replace(examined.resolution, **changes))


@pytest.mark.parametrize(
    ("examined", "message"),
    [
        (replace(POSTGRES, flavour="mysql"), "facts"),
        (changed(POSTGRES, boundary=(probe("mysql-end"),)), "role of others"),
        (changed(POSTGRES, boundary=(probe("postgres-activity"),) * 9), "at most 8"),
        (changed(POSTGRES, library="/etc/shadow"), "library"),
        (changed(POSTGRES, file=("ab12", 78)), "file"),
        (changed(POSTGRES, facts={"idle": 1}), "facts"),
        (changed(VOLTDB, facts={**HEAP, "array-data": 256}), "facts"),
        (replace(POSTGRES, resolution=None), "no resolution"),
        (replace(GENERIC, resolution=POSTGRES.resolution), "generic"),
        (Examined(ports=(1,)), "no server"),
    ],
)
def test_what_no_such_server_has(examined: Examined, message: str) -> None:
    with pytest.raises(QjouleError, match=message):
        again(examined)


@pytest.mark.parametrize(
    "document",
    [
        *(b"", b"\xff", b"[" * 100_000, b"1" * 100_000, b'{"flavour": 1e999}'),
        *(b'{"flavour": null, "flavour": null}', b" " * (DOCUMENT_MAX + 1)),
    ],
    ids=range(7),
)
def test_what_is_no_document(document: bytes) -> None:
    with pytest.raises(QjouleError) as caught:
        examined_from_json(document)
    assert "\n" not in str(caught.value)
