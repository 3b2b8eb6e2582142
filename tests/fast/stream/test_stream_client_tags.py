# SPDX-License-Identifier: Apache-2.0
"""Which queries get the tags that clients send to servers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from qjoule.servers import registry
from qjoule.stream import client_tags as module
from qjoule.stream.client_tags import ClientTags
from qjoule.tags.definitions import Tags
from qjoule_drivers import attributes as carrier

TAGS = pa.map_(pa.string(), pa.string())
A, B = ("n", "a"), ("n", "b")


def _ids(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, np.uint64)


def _found(filled: pa.Array | None) -> list[list[tuple[str, str]] | None]:
    assert filled is not None and filled.type == TAGS
    rows: list[list[tuple[str, str]] | None] = filled.to_pylist()
    return rows


def test_tags_of_calls_come_first() -> None:
    client = ClientTags()
    for query in (1, 2, 3, 5):
        client.add(query, f"n='{query}'".encode(), registry.dialect("tags"), single=True)
    client.add(4, b"no tags", registry.dialect("tags"), single=True)
    called = pa.array([None, [("call", "x")], None, None, []], TAGS)
    filled = client.fill(called, _ids(1, 2, 4, 9, 5), _ids(0, 0, 0, 0, 0))
    assert _found(filled) == [[("n", "1")], [("call", "x")], None, None, [("n", "5")]]
    assert _found(client.fill(None, _ids(1, 3), _ids(0, 0))) == [None, [("n", "3")]]
    assert client.fill(None, _ids(3), _ids(0)) is None


def test_what_many_queries_say_is_told_once() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", registry.dialect("tags"), single=False)
    block = carrier._encoded((("n", "b"),), "utf-8")
    client.add(8, block, registry.dialect("attributes"), single=False)
    client.add(9, block, registry.dialect("tags"), single=False)
    client.add(10, b"\0\x08qjoule.n\0\0\0\1b", registry.dialect("payload"), single=False)
    for _ in range(3):
        filled = client.fill(None, _ids(1, 2, 3, 4, 5, 6), _ids(7, 0, 8, 9, 2**64 - 1, 10))
        assert _found(filled) == [[A], None, [B], None, None, [B]]
    called = pa.array([[], None, [("call", "x")]], TAGS)
    assert _found(client.fill(called, _ids(1, 2, 3), _ids(7, 7, 7))) == [[A], [A], [("call", "x")]]
    assert client.fill(called, _ids(1, 2, 3), _ids(0, 0, 0)) is called


def test_a_connection_s_tags_beside_a_statement_s() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", registry.dialect("tags"), single=False)
    words: list[Tags] = [(("n", "c"), ("r", "1")), (("r", "2"),)]
    connections = np.array([0, 0, 1, -1, -1]), words
    filled = client.fill(None, _ids(1, 2, 3, 4, 5), _ids(7, 0, 7, 7, 0), connections)
    assert _found(filled) == [
        [A, ("r", "1")],
        [("n", "c"), ("r", "1")],
        [A, ("r", "2")],
        [A],
        None,
    ]
    nobody: tuple[NDArray[np.int64], list[Tags]] = np.array([-1, -1]), []
    assert client.fill(None, _ids(1, 2), _ids(0, 0), nobody) is None
    assert client.fill(None, _ids(), _ids()) is None


@pytest.mark.parametrize("single", [True, False])
def test_what_is_remembered_is_bounded(single: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUERIES", 3)
    monkeypatch.setattr(module, "MAX_HASHES", 3)
    client = ClientTags()
    for number in range(1, 11):
        client.add(number, b"n='a'", registry.dialect("tags"), single=single)
    every = np.arange(1, 11, dtype=np.uint64)
    filled = client.fill(None, every, np.zeros(10, np.uint64) if single else every)
    assert _found(filled) == [None] * 7 + [[A]] * 3


def test_what_is_used_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HASHES", 3)
    client = ClientTags()
    for number in range(1, 20):
        client.add(number, b"n='a'", registry.dialect("tags"), single=False)
        assert _found(client.fill(None, _ids(1), _ids(1))) == [[A]]
