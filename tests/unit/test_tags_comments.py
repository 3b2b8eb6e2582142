"""Tags in comments of commands: what is read of them, and whose they become."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags import comments as module
from qjoule.tags.comments import Comments, tags_in
from qjoule.tags.definitions import MAX_KEY, MAX_TAGS, MAX_VALUE
from qjoule_drivers.comments import pairs_of

TAGS = pa.map_(pa.string(), pa.string())
_NAMES = st.text(min_size=1, max_size=20)


@given(st.dictionaries(_NAMES, st.text(max_size=20), min_size=1, max_size=5))
def test_what_a_shim_writes_is_read(tags: dict[str, str]) -> None:
    assert tags_in(pairs_of(tags).encode()) == tuple(sorted(tags.items()))


@pytest.mark.parametrize(
    "comment",
    [
        b"",
        b"checkout",
        b"it is 'quoted'",
        b"a='1' b='2'",
        b"a='1',",
        b"='1'",
        b"a='1'x",
        b"a='1\n'",
        b"a='1\\'",
        b"a='\xff'",
        b"a b='1'",
        b"k" * (MAX_KEY + 1) + b"='1'",
        b"a='" + b"v" * (MAX_VALUE + 1) + b"'",
        b",".join(b"k%d='1'" % number for number in range(MAX_TAGS + 1)),
    ],
)
def test_any_other_comment_is_none(comment: bytes) -> None:
    assert tags_in(comment) == ()


def test_escapes() -> None:
    assert tags_in(rb"a='it\'s',b='%7B%7D'") == (("a", "it's"), ("b", "{}"))


@given(st.binary(max_size=300))
def test_whatever_is_sent_is_bounded(comment: bytes) -> None:
    for key, value in tags_in(comment):
        assert 0 < len(key) <= MAX_KEY and len(value) <= MAX_VALUE


def test_tags_of_calls_come_first() -> None:
    comments = Comments()
    for query in (1, 2, 3):
        comments.add(query, f"n='{query}'".encode())
    comments.add(4, b"no tags")
    called = pa.array([None, [("call", "x")], None, None], TAGS)
    filled = comments.fill(called, np.array([1, 2, 4, 9], np.uint64))
    assert filled is not None and filled.type == TAGS
    assert filled.to_pylist() == [[("n", "1")], [("call", "x")], None, None]
    filled = comments.fill(None, np.array([1, 3], np.uint64))
    assert filled is not None and filled.to_pylist() == [None, [("n", "3")]]
    assert comments.fill(None, np.array([3], np.uint64)) is None


def test_those_whose_query_never_ends_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COMMENTS", 3)
    comments = Comments()
    for query in range(10):
        comments.add(query, b"a='1'")
    filled = comments.fill(None, np.arange(10, dtype=np.uint64))
    assert filled is not None and filled.null_count == 7
