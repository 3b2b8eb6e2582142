# SPDX-License-Identifier: Apache-2.0
"""Laws of MongoDB's replies: what the kernel side reads from them, in whatever pieces they are
sent. Also: laws of MongoDB's shapes.
"""

from __future__ import annotations

import struct
from typing import Any

import bson
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fuzz.mongodb_library import (
    READ_HERE,
    SNAPPY,
    compressed,
    kernel_documents,
    kernel_hash,
    kernel_reply,
    kernel_report,
    message,
    op_msg,
    op_query,
)
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.servers.mongodb.inflate import inflated
from qjoule.servers.mongodb.message import BODY_BYTES, VALUE_KEYS
from qjoule.servers.mongodb.shapes import mongodb_shape
from qjoule.shapes.safe_text import sanitise

REQUEST = 41
DOCUMENTS = 128  #: QJ_MONGODB_DOCUMENTS
_KEYS = st.sampled_from(["a", "n", "id", "cursor", "ok", "writeErrors", "code", "x" * 40])
_SCALARS = st.one_of(
    st.integers(-(2**40), 2**40),
    st.text(max_size=80),
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.binary(max_size=70),
    st.just(bson.ObjectId(b"0123456789ab")),
    st.just(bson.Timestamp(1, 2)),
    st.just(bson.Decimal128("1.5")),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.dictionaries(_KEYS, inner, max_size=4), st.lists(inner, max_size=4)),
    max_leaves=6,
)
#: Other fields in replies: no key that has a meaning.
_BESIDE = st.dictionaries(
    st.sampled_from(["n", "nModified", "$clusterTime", "operationTime", "values", "x" * 40]),
    _VALUES,
    max_size=4,
)


def reply(document: dict[str, Any], to: int = REQUEST) -> bytes:
    return answer(op_msg(document), to)


def answer(request: bytes, to: int = REQUEST) -> bytes:
    return request[:8] + struct.pack("<I", to) + request[12:]


def cursor(number: int, documents: list[Any], batch: str, id_first: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {batch: documents, "id": bson.Int64(number)}
    if id_first:
        fields = dict(reversed(fields.items()))
    return {**fields, "ns": "shop.orders"}


CURSORS = st.builds(
    cursor,
    st.one_of(st.just(0), st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.dictionaries(_KEYS, _VALUES, max_size=3), max_size=8),
    st.sampled_from(["firstBatch", "nextBatch"]),
    st.booleans(),
)


@given(CURSORS, _BESIDE, st.integers(0, 70))
def test_a_cursor_is_found_wherever_pieces_end(
    found: dict[str, Any], beside: dict[str, Any], step: int
) -> None:
    """No document that a client stored is mistaken for a cursor."""
    body = {"cursor": found, **beside, "ok": 1.0}
    assert kernel_reply(reply(body), REQUEST, step) == ("ok", found["id"])


@given(_BESIDE, st.integers(0, 70), st.sampled_from([0.0, 0, False, -0.0]))
def test_a_command_that_failed(beside: dict[str, Any], step: int, ok: Any) -> None:
    body = {"ok": ok, "errmsg": "no", "code": 2, "codeName": "BadValue", **beside}
    assert kernel_reply(reply(body), REQUEST, step) == ("error", None)


@given(_BESIDE, st.integers(0, 70), st.booleans(), st.booleans())
def test_a_write_that_failed_in_part(
    beside: dict[str, Any], step: int, refused: bool, ok_first: bool
) -> None:
    """Whether or not the server first reports that the command succeeded."""
    errors = {"writeErrors": [{"index": 0, "code": 11000}] if refused else []}
    body = {"ok": 1.0, **errors, **beside} if ok_first else {**errors, **beside, "ok": 1.0}
    assert kernel_reply(reply(body), REQUEST, step) == ("error" if refused else "ok", None)
    bulk = {"cursor": cursor(0, [{"ok": 0}], "firstBatch", False), "nErrors": 1, "ok": 1.0}
    assert kernel_reply(reply(bulk), REQUEST, step) == ("error", 0)


@given(st.integers(0, 70))
def test_only_the_reply_that_is_waited_for_counts(step: int) -> None:
    """All others are skipped: other replies, exhaust replies, compressed ones and those of an old
    kind.
    """
    others = [
        reply({"ok": 0.0}, REQUEST + 1),
        answer(message(b"\0" * 20 + bson.encode({"ok": 0.0}), 1), REQUEST - 1),
        answer(message(b"\0" * 30, 2012), REQUEST - 1),
    ]
    assert kernel_reply(b"".join(others), REQUEST, step) == (None, None)
    mine = reply({"cursor": cursor(7, [], "firstBatch", False), "ok": 1.0})
    assert kernel_reply(b"".join(others) + mine, REQUEST, step) == ("ok", 7)
    for opcode in (1, 2012):
        of_another_kind = answer(message(b"\0" * 30, opcode))
        assert kernel_reply(of_another_kind + mine, REQUEST, step) == (None, None)


@given(CURSORS, _BESIDE, st.integers(0, 70), st.sampled_from(["find", "getMore", "insert", "x"]))
def test_the_documents_of_a_batch_are_counted(
    found: dict[str, Any], beside: dict[str, Any], step: int, command: str
) -> None:
    documents = found["firstBatch"] if "firstBatch" in found else found["nextBatch"]
    for body in ({"cursor": found, **beside, "ok": 1.0}, {**beside, "ok": 1.0, "cursor": found}):
        assert kernel_documents(reply(body), REQUEST, command, step) == len(documents)


@given(st.integers(0, 300), st.integers(0, 400), st.integers(0, 70))
@example(128, 1, 0)
@example(129, 1, 0)
def test_of_a_long_batch_nothing_is_claimed(count: int, size: int, step: int) -> None:
    """Only what comes after the batch is used."""
    long_cursor = cursor(7, [{"a": "x" * size}] * count, "nextBatch", False)
    sent = reply({"cursor": long_cursor, "ok": 1.0})
    assert kernel_reply(sent, REQUEST, step) == ("ok", 7)
    expected = count if count <= DOCUMENTS else None
    assert kernel_documents(sent, REQUEST, "getMore", step) == expected


@given(st.integers(0, 2**31 - 1), st.integers(0, 70))
def test_the_documents_of_a_write_are_its_own_count(n: int, step: int) -> None:
    with_int32 = reply({"n": n, "nModified": 1, "values": [{"n": 5}], "x": {"n": 6}, "ok": 1.0})
    long = reply({"n": bson.Int64(n), "ok": 1.0})
    for command in ("insert", "update", "delete"):
        for write_reply in (with_int32, long):
            assert kernel_documents(write_reply, REQUEST, command, step) == n
        for other in (-1, -(2**40), 2**40, 1.5, "1", None):
            nonsense = reply({"n": other, "ok": 1.0})
            assert kernel_documents(nonsense, REQUEST, command, step) is None
    for command in ("count", "findAndModify", "explain"):
        assert kernel_documents(with_int32, REQUEST, command, step) is None


@given(st.data())
def test_a_batch_that_is_not_as_long_as_it_claims(data: st.DataObject) -> None:
    sent = reply({"cursor": cursor(7, [{"a": 1}] * 3, "firstBatch", False), "ok": 1.0})
    at = sent.index(b"firstBatch\0") + 11
    size = int.from_bytes(sent[at : at + 4], "little")
    claimed = data.draw(st.integers(0, 2**32 - 1).filter(lambda other: other != size))
    lies = sent[:at] + claimed.to_bytes(4, "little") + sent[at + 4 :]
    assert kernel_documents(lies, REQUEST, "find") is None


@given(_BESIDE, st.data())
def test_nothing_is_claimed_of_a_part(beside: dict[str, Any], data: st.DataObject) -> None:
    full_reply = reply({"cursor": cursor(7, [{"a": 1}], "firstBatch", True), "ok": 1.0, **beside})
    cut = data.draw(st.integers(0, len(full_reply) - 1))
    assert kernel_reply(full_reply[:cut], REQUEST) == (None, None)
    assert kernel_documents(full_reply[:cut], REQUEST, "find") is None


@given(st.binary(max_size=300), st.integers(0, 70), st.booleans())
@example(b"\0\0\0\0\0\5\0\0\0\0", 1, True)
def test_any_bytes_in_any_pieces_say_the_same(body: bytes, step: int, is_reply: bool) -> None:
    sent = answer(message(body)) if is_reply else body
    assert kernel_reply(sent, REQUEST, step) == kernel_reply(sent, REQUEST)


# --------------------------------------------------------------------------------------------------
#
# Laws of MongoDB shapes: equal hashes mean equal texts, no value is shown, pieces do not
# matter.

_NAMES = st.sampled_from(
    ["a", "b", "$gt", "$in", "comment", "lsid", "documents", "ns", "$db", "key", "items.3.p"]
)
_SHORT_SCALARS = st.one_of(
    st.integers(-(2**40), 2**40),
    st.text(max_size=6),
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.binary(max_size=5),
    st.just(bson.ObjectId(b"0123456789ab")),
    st.just(bson.Regex("a", "i")),
    st.just(bson.Code("x")),
    st.just(bson.Code("x", {"a": 1})),
    st.just(bson.Timestamp(1, 2)),
    st.just(bson.Decimal128("1.5")),
    st.just(bson.MinKey()),
)
_SHORT_VALUES = st.recursive(
    _SHORT_SCALARS,
    lambda inner: st.one_of(
        st.dictionaries(_NAMES, inner, max_size=4), st.lists(inner, max_size=4)
    ),
    max_leaves=6,
)
_DOCUMENTS = st.dictionaries(_NAMES, _SHORT_VALUES, max_size=5)
_COMMANDS = st.builds(
    lambda name, first, rest: {name: first, **rest},
    st.sampled_from(["find", "aggregate", "update", "insert", "distinct", "hello", "x"]),
    st.one_of(st.sampled_from(["orders", "o2"]), _SHORT_SCALARS),
    _DOCUMENTS,
)
_SECTIONS = st.dictionaries(
    st.sampled_from(["documents", "updates", "ops", "nsInfo"]),
    st.lists(_DOCUMENTS, max_size=4),
    max_size=2,
)
MESSAGES = st.one_of(
    st.builds(op_msg, _COMMANDS, _SECTIONS, checksum=st.booleans()),
    st.builds(op_query, st.sampled_from(["admin.$cmd", "shop.orders"]), _COMMANDS),
)
#: Arbitrary bytes after a plausible header; most of them begin well.
HOSTILE = st.one_of(
    st.builds(message, st.binary(max_size=200), st.sampled_from([2001, 2004, 2012, 2013])),
    st.builds(
        lambda whole, at, byte: (
            whole[: 16 + at % (len(whole) - 16)]
            + bytes([byte])
            + whole[17 + at % (len(whole) - 16) :]
        ),
        MESSAGES,
        st.integers(0, 10_000),
        st.integers(0, 255),
    ),
    st.builds(lambda whole, size: message(whole[16 : 16 + size]), MESSAGES, st.integers(0, 300)),
)


def others(value: Any, draw: st.DrawFn) -> Any:
    """The same structure with other values."""
    if isinstance(value, dict):
        return {name: others(child, draw) for name, child in value.items()}
    if isinstance(value, list):
        return [others(child, draw) for child in value]
    return draw(_SHORT_SCALARS)


@given(st.one_of(MESSAGES, HOSTILE), st.one_of(MESSAGES, HOSTILE))
def test_equal_hash_implies_equal_shape(first: bytes, second: bytes) -> None:
    if kernel_hash(first) == kernel_hash(second):
        assert mongodb_shape(kernel_report(first)) == mongodb_shape(kernel_report(second))


@given(st.data(), _DOCUMENTS, st.booleans())
def test_values_make_no_difference(
    data: st.DataObject, document: dict[str, Any], long: bool
) -> None:
    """Their type and length make none either, unless a message is longer than what is examined."""
    other = data.draw(st.composite(lambda draw: others(document, draw))())
    tail = {"pad": "x" * 5000, "z": 1} if long else {}
    first = op_msg({"find": "orders", "filter": document, **tail, "$db": "shop"})
    second = op_msg({"find": "orders", "filter": other, **tail, "$db": "shop"})
    assert long or kernel_hash(first) == kernel_hash(second)
    if kernel_hash(first) == kernel_hash(second):
        assert mongodb_shape(kernel_report(first)) == mongodb_shape(kernel_report(second))


@given(st.one_of(MESSAGES, HOSTILE), st.integers(1, 64))
@example(op_msg({"find": "o", "filter": {"a": "x" * 4030}, "$db": "d"}), 7)  # at the bound
@example(op_msg({"find": "o", "filter": {"a": "x" * 4100}, "$db": "d"}), 7)
@example(op_msg({"insert": "o", "$db": "d"}, {"documents": [{"a": "x" * 9000}]}), 64)
@example(op_msg({"insert": "o", "$db": "d"}, {"documents": [{"a": "x" * 9000}]}, checksum=True), 13)
def test_pieces_make_no_difference(whole: bytes, step: int) -> None:
    assert kernel_hash(whole, step) == kernel_hash(whole)


@given(HOSTILE)
def test_hostile_messages_have_a_shape(whole: bytes) -> None:
    shape = fingerprint(kernel_report(whole), registry.dialect("mongodb"))
    assert shape.text and sanitise(shape.text) == shape.text
    assert len(shape.text) <= 4096
    assert kernel_hash(whole) not in (0, 2**64 - 1)


@given(_DOCUMENTS, st.text(min_size=8, max_size=20).filter(lambda text: "\0" not in text))
def test_no_value_is_shown(document: dict[str, Any], secret: str) -> None:
    assume(secret not in str(sorted(VALUE_KEYS)) and not any(c in secret for c in "?{}[] ,:."))
    command = {"find": "orders", "filter": {"a": secret, "b": [secret], **document}, "$db": "shop"}
    command |= {"comment": secret, "let": {"x": secret}, "hint": secret}
    assert secret not in mongodb_shape(kernel_report(op_msg(command)))


@given(MESSAGES, st.sampled_from(READ_HERE), st.integers(0, 400))
def test_compressed_messages_are_read_as_plain_ones(
    whole: bytes, compressor: int, cut: int
) -> None:
    packed = kernel_report(compressed(whole, compressor))
    plain = inflated(packed)
    assert plain == kernel_report(whole) or (len(whole) == 16 and plain is None)
    # A message cut off before it was recorded claims more bytes than it has.
    part = inflated(packed[: max(len(packed) - cut, 16)])
    assert part is None or kernel_report(whole).startswith(part)


@given(MESSAGES, st.integers(0, 300))
@example(op_msg({"find": "o", "filter": {"a": b"x" * 9000}, "$db": "d"}), 0)
@example(op_msg({"find": "o", "filter": {"a": 1}, "let": {"b": b"x" * 9000}, "$db": "d"}), 0)
def test_the_kernel_reads_what_snappy_compressed_as_plain(whole: bytes, step: int) -> None:
    packed = compressed(whole, SNAPPY)
    assume(len(packed) <= 16 + BODY_BYTES)
    assert kernel_hash(packed, step) == kernel_hash(whole)
