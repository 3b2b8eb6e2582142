# SPDX-License-Identifier: Apache-2.0
"""A getMore counts under the command that opened its cursor, in whichever order both are
reported.
"""

from __future__ import annotations

import bson
import numpy as np
import pytest

from fuzz.mongodb_library import op_msg, told
from qjoule.contract import TEXT, Block
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.stream.blocks import Frame
from qjoule.stream.names import Names
from qjoule.stream.statements import Statements

FIND, MORE = 11, 12
FOUND = op_msg({"find": "orders", "filter": {"a": 1}, "$db": "shop"})
GOES_ON = op_msg({"getMore": bson.Int64(7), "collection": "orders", "$db": "shop"})
OF_FIND = "shop.orders getMore of shop.orders find {a: ?}"
UNKNOWN = "shop.orders getMore (origin unknown)"


def text(shape: int, statement: bytes) -> Frame:
    record = np.zeros(1, TEXT)
    record["shape"], record["dialect"] = shape, registry.dialect("mongodb")
    record["text_bytes"] = record["statement_bytes"] = len(statement)
    return Frame(Block.TEXT, 0, record, statement)


FRAMES = (text(FIND, told(FOUND)), text(MORE, told(GOES_ON, FIND)))


@pytest.mark.parametrize("frames", [FRAMES, FRAMES[::-1], (*FRAMES[::-1], FRAMES[1])])
def test_the_command_may_come_later(frames: tuple[Frame, ...]) -> None:
    """Each CPU has its own buffer, so texts do not arrive in the order of requests."""
    statements = Statements(fingerprint)
    names = Names(fingerprint, ())
    for frame in frames:
        statements.add(frame)
        names.add_text(frame)
    known = statements.fingerprints(np.array([MORE, FIND, MORE], np.uint64))
    assert known.null_count == 0
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
    assert statements.take_shapes()["text"].to_pylist() == [UNKNOWN]
    named = names.statement(MORE)
    assert named is not None and named[1] == UNKNOWN


def test_what_waits_is_bounded() -> None:
    statements = Statements(fingerprint, max_shapes=3)
    for shape in range(100, 110):
        statements.add(text(shape, told(GOES_ON, FIND + shape)))
    named = statements.fingerprints(np.arange(100, 110, dtype=np.uint64))
    assert named.null_count == 7
