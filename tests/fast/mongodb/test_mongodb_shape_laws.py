# SPDX-License-Identifier: Apache-2.0
"""Laws of MongoDB shapes: equal hashes mean equal texts, no value is shown, pieces do not
matter.
"""

from __future__ import annotations

from typing import Any

import bson
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fuzz.mongodb_library import (
    READ_HERE,
    SNAPPY,
    compressed,
    kernel_hash,
    message,
    op_msg,
    op_query,
    told,
)
from qjoule.servers import registry
from qjoule.servers.mongodb.compressed import inflated
from qjoule.servers.mongodb.message import BODY_BYTES, VALUE_KEYS
from qjoule.servers.mongodb.shapes import mongodb_shape
from qjoule.servers.shapes import fingerprint
from qjoule.shapes import sanitise

_NAMES = st.sampled_from(
    ["a", "b", "$gt", "$in", "comment", "lsid", "documents", "ns", "$db", "key", "items.3.p"]
)
_SCALARS = st.one_of(
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
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.dictionaries(_NAMES, inner, max_size=4), st.lists(inner, max_size=4)
    ),
    max_leaves=6,
)
_DOCUMENTS = st.dictionaries(_NAMES, _VALUES, max_size=5)
_COMMANDS = st.builds(
    lambda name, first, rest: {name: first, **rest},
    st.sampled_from(["find", "aggregate", "update", "insert", "distinct", "hello", "x"]),
    st.one_of(st.sampled_from(["orders", "o2"]), _SCALARS),
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
    return draw(_SCALARS)


@given(st.one_of(MESSAGES, HOSTILE), st.one_of(MESSAGES, HOSTILE))
def test_equal_hash_implies_equal_shape(one: bytes, other: bytes) -> None:
    if kernel_hash(one) == kernel_hash(other):
        assert mongodb_shape(told(one)) == mongodb_shape(told(other))


@given(st.data(), _DOCUMENTS, st.booleans())
def test_values_make_no_difference(data: st.DataObject, asked: dict[str, Any], long: bool) -> None:
    """Nor do their type or length, unless a message is longer than what is examined."""
    other = data.draw(st.composite(lambda draw: others(asked, draw))())
    tail = {"pad": "x" * 5000, "z": 1} if long else {}
    one = op_msg({"find": "orders", "filter": asked, **tail, "$db": "shop"})
    two = op_msg({"find": "orders", "filter": other, **tail, "$db": "shop"})
    assert long or kernel_hash(one) == kernel_hash(two)
    if kernel_hash(one) == kernel_hash(two):
        assert mongodb_shape(told(one)) == mongodb_shape(told(two))


@given(st.one_of(MESSAGES, HOSTILE), st.integers(1, 64))
@example(op_msg({"find": "o", "filter": {"a": "x" * 4030}, "$db": "d"}), 7)  # at the bound
@example(op_msg({"find": "o", "filter": {"a": "x" * 4100}, "$db": "d"}), 7)
@example(op_msg({"insert": "o", "$db": "d"}, {"documents": [{"a": "x" * 9000}]}), 64)
@example(op_msg({"insert": "o", "$db": "d"}, {"documents": [{"a": "x" * 9000}]}, checksum=True), 13)
def test_pieces_make_no_difference(whole: bytes, step: int) -> None:
    assert kernel_hash(whole, step) == kernel_hash(whole)


@given(HOSTILE)
def test_hostile_messages_have_a_shape(whole: bytes) -> None:
    shape = fingerprint(told(whole), registry.dialect("mongodb"))
    assert shape.text and sanitise(shape.text) == shape.text
    assert len(shape.text) <= 4096
    assert kernel_hash(whole) not in (0, 2**64 - 1)


@given(_DOCUMENTS, st.text(min_size=8, max_size=20).filter(lambda text: "\0" not in text))
def test_no_value_is_shown(asked: dict[str, Any], secret: str) -> None:
    assume(secret not in str(sorted(VALUE_KEYS)) and not any(c in secret for c in "?{}[] ,:."))
    command = {"find": "orders", "filter": {"a": secret, "b": [secret], **asked}, "$db": "shop"}
    command |= {"comment": secret, "let": {"x": secret}, "hint": secret}
    assert secret not in mongodb_shape(told(op_msg(command)))


@given(MESSAGES, st.sampled_from(READ_HERE), st.integers(0, 400))
def test_compressed_messages_are_read_as_plain_ones(
    whole: bytes, compressor: int, cut: int
) -> None:
    packed = told(compressed(whole, compressor))
    plain = inflated(packed)
    assert plain == told(whole) or (len(whole) == 16 and plain is None)
    # A message cut off before it was recorded claims more bytes than it has.
    part = inflated(packed[: max(len(packed) - cut, 16)])
    assert part is None or told(whole).startswith(part)


@given(MESSAGES, st.integers(0, 300))
@example(op_msg({"find": "o", "filter": {"a": b"x" * 9000}, "$db": "d"}), 0)
@example(op_msg({"find": "o", "filter": {"a": 1}, "let": {"b": b"x" * 9000}, "$db": "d"}), 0)
def test_the_kernel_reads_what_snappy_compressed_as_plain(whole: bytes, step: int) -> None:
    packed = compressed(whole, SNAPPY)
    assume(len(packed) <= 16 + BODY_BYTES)
    assert kernel_hash(packed, step) == kernel_hash(whole)
