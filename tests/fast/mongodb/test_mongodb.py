# SPDX-License-Identifier: Apache-2.0
"""MongoDB commands as shapes, case by case; a getMore counts under the command of its cursor.
What inflates compressed messages gives what the libraries give. Also: what configuration,
functions and greetings of a mongod and a FerretDB say.
"""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.mongodb_library import READ_HERE, compressed, kernel_report, message, op_msg, op_query
from qjoule.contract import TEXT, Block
from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.candidate import Candidate
from qjoule.servers.decoding import fingerprint
from qjoule.servers.elf import open_executable
from qjoule.servers.ferretdb import encryption as ferretdb_encryption
from qjoule.servers.mongodb import inflate
from qjoule.servers.mongodb.inflate import inflated
from qjoule.servers.mongodb.shapes import mongodb_shape
from qjoule.servers.mongodb.support import SIGNATURES, Role, boundary_functions
from qjoule.servers.mongodb.wire import hello
from qjoule.servers.support import Settings
from qjoule.stream.blocks import Frame
from qjoule.stream.names import Names
from qjoule.stream.statements import Statements
from servers.fake_proc import FakeProc, candidate, settings_of
from servers.toy_elf import toy_server

LSID = {"lsid": {"id": bson.Binary(b"0" * 16, 4)}, "$db": "shop"}
COMMANDS: list[tuple[dict[str, Any], str]] = [
    (
        {
            "find": "orders",
            "filter": {"total": {"$gt": 5}, "customer": "ann"},
            "sort": {"date": -1, "_id": 1},
            "limit": 3,
            "batchSize": 9,
            "comment": "checkout",
        },
        "shop.orders find {customer: ?, total: {$gt: ?}} limit ? sort {date: ?, _id: ?}",
    ),
    (
        {"find": "o", "filter": {"items.17.id": 1, "by.5f2b8c1e0123456789abcdef": 2}},
        "shop.o find {by.?: ?, items.?.id: ?}",
    ),
    (
        {
            "aggregate": "orders",
            "pipeline": [
                {"$match": {"status": "open"}},
                {"$group": {"_id": "$customer", "n": {"$sum": 1}}},
                {"$sort": {"n": -1}},
            ],
            "cursor": {"batchSize": 100},
        },
        "shop.orders aggregate [{$match: {status: ?}}, {$group: {_id: ?, n: {$sum: ?}}}, "
        "{$sort: {n: ?}}]",
    ),
    (
        {"findAndModify": "o", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "new": True},
        "shop.o findAndModify {_id: ?} new ? update {$inc: {n: ?}}",
    ),
    (
        {"update": "o", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}}]},
        "shop.o update [{q: {a: ?}, u: {$set: {b: ?}}}]",
    ),
    ({"no such command!": 1}, "(unknown command)"),
]


@pytest.mark.parametrize(("command", "shown"), COMMANDS)
def test_commands(command: dict[str, Any], shown: str) -> None:
    assert mongodb_shape(kernel_report(op_msg({**command, **LSID}))) == shown


def test_bulk_write() -> None:
    ops: list[dict[str, Any]] = [
        {"insert": 0, "document": {"a": 1}},
        {"insert": 0, "document": {"b": 1, "c": 2}},
        {"update": 1, "filter": {"a": 1}, "updateMods": {"$set": {"b": 2}}, "multi": False},
        {"delete": 0, "filter": {"a": 1}, "multi": False},
    ]
    names = [{"ns": "shop.orders"}, {"ns": "shop.log"}]
    request = op_msg({"bulkWrite": 1, "$db": "admin"}, {"ops": ops, "nsInfo": names})
    assert mongodb_shape(kernel_report(request)) == (
        "shop.orders,shop.log bulkWrite [{document: ?, insert: ?}, "
        "{filter: {a: ?}, multi: ?, update: ?, updateMods: {$set: {b: ?}}}, "
        "{delete: ?, filter: {a: ?}, multi: ?}]"
    )


@pytest.mark.parametrize("number", READ_HERE)
def test_a_damaged_compressed_message_has_no_other_shape(number: int) -> None:
    plain = op_msg({"find": "orders", "filter": {"a": 1}, "$db": "shop"})
    packed = compressed(plain, number)
    size = len(plain) - 16
    for claimed in (size - 1, size + 1, 0, 2**31 - 1, 2**32 - 1):
        lies = packed[:20] + claimed.to_bytes(4, "little") + packed[24:]
        assert mongodb_shape(kernel_report(lies)).startswith("(compressed by ")
    nested = compressed(compressed(plain), number)
    unknown = packed[:24] + b"\x09" + packed[25:]
    for other in (nested, unknown, packed[:25], compressed(message(b""), number)):
        assert mongodb_shape(kernel_report(other)).startswith("(compressed by ")


def test_bombs_are_not_inflated() -> None:
    tracemalloc.start()
    for number in READ_HERE:
        bomb = compressed(op_msg({"find": "o", "filter": {"a": "\0" * 20_000_000}}), number)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert (
            inflated(kernel_report(bomb)) is None
            or len(inflated(kernel_report(bomb)) or b"") < 5000
        )
        assert tracemalloc.get_traced_memory()[1] - before < 1_000_000
    tracemalloc.stop()


FIND, MORE = 11, 12
FOUND = op_msg({"find": "orders", "filter": {"a": 1}, "$db": "shop"})
GOES_ON = op_msg({"getMore": bson.Int64(7), "collection": "orders", "$db": "shop"})
OF_FIND = "shop.orders getMore of shop.orders find {a: ?}"


def text(shape: int, statement: bytes) -> Frame:
    record = np.zeros(1, TEXT)
    record["shape"], record["dialect"] = shape, registry.dialect("mongodb")
    record["text_bytes"] = record["statement_bytes"] = len(statement)
    return Frame(Block.TEXT, 0, record, statement)


FRAMES = (text(FIND, kernel_report(FOUND)), text(MORE, kernel_report(GOES_ON, FIND)))


@pytest.mark.parametrize("frames", [FRAMES, FRAMES[::-1], (*FRAMES[::-1], FRAMES[1])])
def test_the_command_may_come_later(frames: tuple[Frame, ...]) -> None:
    """Each CPU has its own buffer, so texts do not arrive in the order of requests."""
    statements = Statements(fingerprint)
    names = Names(fingerprint, ())
    for frame in frames:
        statements.add(frame)
        names.add_text(frame)
    fingerprints = statements.fingerprints(np.array([MORE, FIND, MORE], np.uint64))
    assert fingerprints.null_count == 0
    shapes = statements.take_shapes()
    assert shapes["text"].to_pylist().count(OF_FIND) == shapes.num_rows - 1 == 1
    named = names.statement(MORE)
    assert named is not None and named[1] == OF_FIND


def test_a_command_that_never_comes() -> None:
    statements = Statements(fingerprint)
    names = Names(fingerprint, ())
    statements.add(FRAMES[1])
    names.add_text(FRAMES[1])
    assert statements.take_shapes().num_rows == 0
    assert statements.fingerprints(np.array([MORE], np.uint64)).null_count == 0
    unknown = "shop.orders getMore (origin unknown)"
    assert statements.take_shapes()["text"].to_pylist() == [unknown]
    named = names.statement(MORE)
    assert named is not None and named[1] == unknown


# ---- inflating: of a prefix of the input, a prefix of the output ---------------------------------

Inflate = Callable[[bytes, int], bytes]
Deflate = Callable[[bytes], bytes]
LIMIT = 4096


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


FORMATS: list[tuple[Inflate, Deflate]] = [
    (inflate.zlib_stream, zlib.compress),
    (inflate.zstd_frame, _zstd),
]
_each = pytest.mark.parametrize("inflated, deflated", FORMATS, ids=["zlib", "zstd"])
#: Text that repeats itself, near and far, and noise that cannot be compressed.
TEXTS = st.lists(
    st.one_of(
        st.sampled_from([b"SELECT id FROM orders WHERE ", b"note = ", b"a" * 40, b"\0" * 300]),
        st.binary(max_size=300),
    ),
    max_size=40,
).map(b"".join)


@_each
@given(text=TEXTS, limit=st.integers(0, 20_000), share_kept=st.floats(0, 1))
@example(text=b"", limit=LIMIT, share_kept=1)
@example(text=b"ab" * 50_000, limit=200_000, share_kept=0.5)
@example(text=bytes(range(256)) * 300, limit=70_000, share_kept=0.5)
def test_all_or_a_prefix_is_inflated_as_by_the_library(
    inflated: Inflate, deflated: Deflate, text: bytes, limit: int, share_kept: float
) -> None:
    packed = deflated(text)
    assert inflated(packed, limit) == text[:limit]
    assert text[:limit].startswith(inflated(packed[: int(share_kept * len(packed))], limit))


@pytest.mark.parametrize("inflated", [inflated for inflated, _ in FORMATS])
@given(noise=st.binary(max_size=400), limit=st.integers(0, 2000))
@example(noise=b"\x10a\x01\x00\xff\xff\xff", limit=2000)
@example(noise=b"\xff" * 400, limit=2000)
@example(noise=b"\xff\xff\xff\xff\x0f\xfc\xff\xff\xff\xffab", limit=2000)
def test_the_output_for_any_input_is_bounded(inflated: Inflate, noise: bytes, limit: int) -> None:
    assert len(inflated(noise, limit)) <= limit


# ---- what a mongod's and a FerretDB's configuration, functions and greetings say -----------------


def process(
    base: Path, *arguments: str, file: str | None = None, environment: tuple[str, ...] = ()
) -> Candidate:
    base.mkdir(exist_ok=True)
    fake = FakeProc(base)
    if file is not None:
        (fake.host / "etc").mkdir(parents=True, exist_ok=True)
        (fake.host / "etc" / "mongod.conf").write_text(file)
    entry = fake.add(
        100, "/bin/true", arguments=("mongod", *arguments), cwd="/etc", environment=environment
    )
    return candidate(entry)


def values(facts: Settings) -> tuple[bool | None, bool | None, bool | None]:
    return (facts.encryption.value, facts.thread_pool.value, facts.compression.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), (False, False, True)),
        (("--tlsMode", "requireTLS"), (True, False, True)),
        (("--serviceExecutor", "adaptive"), (False, True, True)),
        (("--setParameter", "initialServiceExecutorThreadingModel=borrowed"), (False, True, True)),
        (("--networkMessageCompressors", "disabled"), (False, False, False)),
    ],
)
def test_the_command_line(
    arguments: tuple[str, ...], expected: tuple[bool | None, ...], tmp_path: Path
) -> None:
    assert values(settings_of(process(tmp_path, *arguments), "mongodb")) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("", (False, False, True)),
        ("net:\n  port: 1\n  tls:\n    mode: preferTLS\n", (True, False, True)),
        ("sslMode = requireSSL\n# a comment\nport = 1\n", (True, False, True)),
        ("net:\n  tls:\n    __exec: /bin/say\n", (None, None, None)),
        ("net: [\n", (None, None, None)),
    ],
)
def test_the_configuration_file(
    file: str, expected: tuple[bool | None, ...], tmp_path: Path
) -> None:
    settings = settings_of(process(tmp_path, "--config", "/etc/mongod.conf", file=file), "mongodb")
    assert values(settings) == expected


def test_ferretdb_listens_for_tls(tmp_path: Path) -> None:
    assert ferretdb_encryption(process(tmp_path / "1")).value is False
    assert ferretdb_encryption(process(tmp_path / "2", "--listen-tls=:27018")).value is True
    environment = ("FERRETDB_LISTEN_TLS=:27018",)
    assert ferretdb_encryption(process(tmp_path / "3", environment=environment)).value is True


@pytest.mark.parametrize("name", [name for _, name in SIGNATURES])
def test_the_function_is_found_by_its_whole_signature(name: str, tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", [name, "_ZN5mongo4mainEv"]))
    functions = boundary_functions(executable)
    assert {role: symbol.name for role, symbol in functions.items()} == {
        Role.REQUEST: name,
        Role.DONE: name,
    }


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["main2"], "no handleRequest of a mongod"),
        ([SIGNATURES[0][1], SIGNATURES[1][1]], "two signatures"),
        ([SIGNATURES[0][1] + "i"], "signature that is not known"),
    ],
)
def test_no_function_is_guessed(names: list[str], why: str, tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", names))
    with pytest.raises(QjouleError, match=why):
        boundary_functions(executable)


HELLO = {"hello": 1, "client": {"driver": {"name": "x"}, "application": {"name": "till"}}}


@pytest.mark.parametrize("size", [0, 60, 512])
def test_a_greeting_that_is_cut_has_no_application(size: int) -> None:
    for request in (op_msg(HELLO), op_query("admin.$cmd", HELLO)):
        greeting = hello(request[16 : 16 + size])
        assert greeting.application == ("till" if size == 512 else None)
        assert greeting.user is None


def test_a_greeting_names_its_user() -> None:
    asked = {**HELLO, "saslSupportedMechs": "shop.ann", "$db": "admin"}
    greeting = hello(op_msg(asked)[16:])
    assert (greeting.user, greeting.database, greeting.application) == ("ann", "shop", "till")
    payload = bson.Binary(b"n,,n=a=2Cnn,r=nonce")
    speculative = {"saslStart": 1, "payload": payload, "db": "shop"}
    greeting = hello(op_msg({**HELLO, "speculativeAuthenticate": speculative})[16:])
    assert (greeting.user, greeting.database) == ("a,nn", "shop")
