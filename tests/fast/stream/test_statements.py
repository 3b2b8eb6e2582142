# SPDX-License-Identifier: Apache-2.0
"""Which queries get which texts of statements, and which tags that clients send."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from fuzz.mongodb_library import compressed, op_msg, told
from qjoule.contract import SHAPE_OTHER, TEXT, Block
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.stream import client_tags
from qjoule.stream import statements as module
from qjoule.stream.blocks import Frame
from qjoule.stream.client_tags import ClientTags
from qjoule.stream.statements import Statements
from qjoule.tags.definitions import Tags
from qjoule_drivers import attributes as carrier


def ids(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, np.uint64)


# ---- texts of single queries ---------------------------------------------------------------------


def single(shape: int, key: str) -> Frame:
    """The text of one query: each has a hash of its own."""
    command = op_msg({"find": "orders", "filter": {key: shape}, "$db": "shop"})
    text = told(compressed(command))
    rows = np.zeros(1, TEXT)
    rows["shape"], rows["dialect"], rows["single"] = shape, registry.dialect("mongodb"), True
    rows["text_bytes"] = rows["statement_bytes"] = len(text)
    return Frame(Block.TEXT, 0, rows, text)


def test_single_queries_of_one_shape_share_the_hash_of_the_first() -> None:
    statements = Statements(fingerprint)
    for shape in range(1, 9):
        statements.add(single(shape, "ab"[shape % 2]))
    ended = ids(8, 3, 1, 2, 77, 4)
    settled = statements.settled(ended)
    assert settled.tolist() == [2, 1, 1, 2, 77, 2]
    assert statements.fingerprints(settled).null_count == 1
    shapes = statements.take_shapes()
    assert shapes["shape"].to_pylist() == [1, 2]
    assert shapes["text"].to_pylist() == ["shop.orders find {b: ?}", "shop.orders find {a: ?}"]
    assert statements.settled(ids(5, 6, 7)).tolist() == [1, 2, 1]
    assert statements.settled(ended) is ended  # nothing is left to settle


def test_single_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SINGLES", 5)
    never_ended, ever_new = Statements(fingerprint), Statements(fingerprint, max_shapes=3)
    for shape in range(1, 20):
        never_ended.add(single(shape, "a"))
        ever_new.add(single(shape, f"key{shape}"))
    assert never_ended.settled(ids(2, 15, 19)).tolist() == [2, 1, 1]
    settled = ever_new.settled(ids(1, 2, 18, 19))
    assert settled.tolist() == [1, 2, SHAPE_OTHER, SHAPE_OTHER]
    assert ever_new.fingerprints(settled).null_count == 0


# ---- tags that clients send to servers -----------------------------------------------------------

TAGS = pa.map_(pa.string(), pa.string())
SQL_TAGS = registry.dialect("tags")
A, B = ("n", "a"), ("n", "b")


def filled(column: pa.Array | None) -> list[list[tuple[str, str]] | None]:
    assert column is not None and column.type == TAGS
    rows: list[list[tuple[str, str]] | None] = column.to_pylist()
    return rows


def test_tags_of_calls_take_precedence_over_those_of_single_queries() -> None:
    client = ClientTags()
    for query in (1, 2, 3, 5):
        client.add(query, f"n='{query}'".encode(), SQL_TAGS, single=True)
    client.add(4, b"no tags", SQL_TAGS, single=True)
    called = pa.array([None, [("call", "x")], None, None, []], TAGS)
    both = client.fill(called, ids(1, 2, 4, 9, 5), ids(0, 0, 0, 0, 0))
    assert filled(both) == [[("n", "1")], [("call", "x")], None, None, [("n", "5")]]
    assert filled(client.fill(None, ids(1, 3), ids(0, 0))) == [None, [("n", "3")]]
    assert client.fill(None, ids(3), ids(0)) is None


def test_tags_of_many_queries_are_told_once() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", SQL_TAGS, single=False)
    block = carrier._encoded((("n", "b"),), "utf-8")
    client.add(8, block, registry.dialect("attributes"), single=False)
    client.add(9, block, SQL_TAGS, single=False)
    client.add(10, b"\0\x08qjoule.n\0\0\0\1b", registry.dialect("payload"), single=False)
    for _ in range(2):
        column = client.fill(None, ids(1, 2, 3, 4, 5, 6), ids(7, 0, 8, 9, 2**64 - 1, 10))
        assert filled(column) == [[A], None, [B], None, None, [B]]
    called = pa.array([[], None, [("call", "x")]], TAGS)
    assert filled(client.fill(called, ids(1, 2, 3), ids(7, 7, 7))) == [[A], [A], [("call", "x")]]
    assert client.fill(called, ids(1, 2, 3), ids(0, 0, 0)) is called


def test_a_statements_tags_take_precedence_over_its_connections() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", SQL_TAGS, single=False)
    tags: list[Tags] = [(("n", "c"), ("r", "1")), (("r", "2"),)]
    connections = np.array([0, 0, 1, -1, -1]), tags
    assert filled(client.fill(None, ids(1, 2, 3, 4, 5), ids(7, 0, 7, 7, 0), connections)) == [
        [A, ("r", "1")],
        [("n", "c"), ("r", "1")],
        [A, ("r", "2")],
        [A],
        None,
    ]
    assert client.fill(None, ids(1, 2), ids(0, 0), (np.array([-1, -1]), [])) is None
    assert client.fill(None, ids(), ids()) is None


@pytest.mark.parametrize("is_single", [True, False])
def test_remembered_tags_are_bounded(is_single: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tags, "MAX_QUERIES", 3)
    monkeypatch.setattr(client_tags, "MAX_HASHES", 3)
    client, used = ClientTags(), ClientTags()
    for number in range(1, 11):
        client.add(number, b"n='a'", SQL_TAGS, single=is_single)
        used.add(number, b"n='a'", SQL_TAGS, single=False)
        assert filled(used.fill(None, ids(1), ids(1))) == [[A]], "tags in use are kept"
    every = np.arange(1, 11, dtype=np.uint64)
    column = client.fill(None, every, np.zeros(10, np.uint64) if is_single else every)
    assert filled(column) == [None] * 7 + [[A]] * 3
