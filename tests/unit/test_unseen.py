# SPDX-License-Identifier: Apache-2.0
"""Statements that were prepared before tracing began and have no text."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from qjoule.contract import TEXT, Block
from qjoule.model.labels import PREPARED_BEFORE, is_prepared_before
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.servers.unseen import unseen_text
from qjoule.stream.blocks import Frame
from qjoule.stream.statements import MAX_UNSEEN, Statements

DIALECT = registry.dialect("unseen")


def unseen(session: int, statement: int) -> bytes:
    return struct.pack("<QQ", session, statement)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (17, "statement 17"),
        (0xDEADBEEF_00000001, "statement 0xdeadbeef00000001"),
        ((1 << 64) - 1, "the unnamed statement"),
    ],
)
def test_a_row_says_which_statement_of_which_session(statement: int, words: str) -> None:
    text = unseen_text(unseen(5, statement))
    assert text == f"(prepared before tracing began: {words} of session 5)"
    assert is_prepared_before(text)
    assert fingerprint(unseen(5, statement), DIALECT).text == text


def test_other_bytes_say_nothing() -> None:
    assert unseen_text(b"") == unseen_text(b"x" * 15) == PREPARED_BEFORE


def test_the_rows_are_bounded_and_leave_room_for_statements() -> None:
    statements = Statements(fingerprint, max_shapes=2 * MAX_UNSEEN)
    shapes = np.arange(1, MAX_UNSEEN + 11, dtype=np.uint64)
    for shape in shapes.tolist():
        statements.add(_frame(shape, unseen(shape, 1), DIALECT))
    named = statements.fingerprints(shapes).to_pylist()
    assert None not in named[:MAX_UNSEEN]
    assert len(set(named[:MAX_UNSEEN])) == MAX_UNSEEN
    assert set(named[MAX_UNSEEN:]) == {None}  # these share the row of all others
    other = 1 << 32
    statements.add(_frame(other, b"select 1", registry.dialect("mysql")))
    assert statements.fingerprints(np.array([other], np.uint64)).to_pylist() != [None]


def _frame(shape: int, text: bytes, dialect: int) -> Frame:
    record = np.zeros(1, TEXT)
    record["shape"], record["dialect"] = shape, dialect
    record["statement_bytes"] = record["text_bytes"] = len(text)
    return Frame(Block.TEXT, 0, record, text)
