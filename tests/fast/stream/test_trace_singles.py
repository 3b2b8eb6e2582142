# SPDX-License-Identifier: Apache-2.0
"""Texts of single queries: those with the same shape share the hash of the first."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz.mongodb_library import compressed, op_msg, told
from qjoule.contract import SHAPE_OTHER, TEXT, Block
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.stream import statements as module
from qjoule.stream.blocks import Frame
from qjoule.stream.statements import Statements


def single(shape: int, key: str, value: int) -> Frame:
    asked = op_msg({"find": "orders", "filter": {key: value}, "$db": "shop"})
    text = told(compressed(asked))
    record = np.zeros(1, TEXT)
    record["shape"], record["dialect"], record["single"] = shape, registry.dialect("mongodb"), 1
    record["text_bytes"] = record["statement_bytes"] = len(text)
    return Frame(Block.TEXT, 0, record, text)


def test_one_hash_for_each_shape() -> None:
    statements = Statements(fingerprint)
    for shape in range(1, 9):
        statements.add(single(shape, "ab"[shape % 2], shape))
    ended = np.array([8, 3, 1, 2, 77, 4], np.uint64)
    settled = statements.settled(ended)
    assert settled.tolist() == [2, 1, 1, 2, 77, 2]
    assert statements.fingerprints(settled).null_count == 1
    shapes = statements.take_shapes()
    assert shapes["shape"].to_pylist() == [1, 2]
    assert shapes["text"].to_pylist() == ["shop.orders find {b: ?}", "shop.orders find {a: ?}"]
    assert statements.settled(np.array([5, 6, 7], np.uint64)).tolist() == [1, 2, 1]
    assert statements.settled(ended) is ended  # nothing is left to settle


def test_those_that_never_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SINGLES", 5)
    statements = Statements(fingerprint)
    for shape in range(1, 20):
        statements.add(single(shape, "a", shape))
    settled = statements.settled(np.array([2, 15, 19], np.uint64))
    assert settled.tolist() == [2, 1, 1]


def test_ever_new_shapes_are_bounded() -> None:
    statements = Statements(fingerprint, max_shapes=3)
    for shape in range(1, 20):
        statements.add(single(shape, f"key{shape}", shape))
    settled = statements.settled(np.array([1, 2, 18, 19], np.uint64))
    assert settled.tolist() == [1, 2, SHAPE_OTHER, SHAPE_OTHER]
    assert statements.fingerprints(settled).null_count == 0
