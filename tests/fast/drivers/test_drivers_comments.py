# SPDX-License-Identifier: Apache-2.0
"""Tags inside statements: opt-in, and they cannot end the comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule_drivers import tag
from qjoule_drivers.comments import comment_of, commented, put_in_statements


@pytest.fixture(autouse=True)
def keys() -> Iterator[None]:
    put_in_statements({"endpoint", "tenant"})
    yield
    put_in_statements(())


def test_only_what_was_named_goes_in() -> None:
    with tag(endpoint="a/b c", tenant=7, secret="no"):
        assert commented("SELECT 1") == "SELECT 1/*endpoint='a%2Fb%20c',tenant='7'*/"
        assert commented(b"SELECT 1 ; ") == b"SELECT 1 /*endpoint='a%2Fb%20c',tenant='7'*/;"
    put_in_statements(())
    with tag(endpoint="x"):
        assert commented("SELECT 1") == "SELECT 1"


def test_what_is_left_alone() -> None:
    assert commented("SELECT 1") == "SELECT 1"
    with tag(secret="no"):
        assert commented("SELECT 1") == "SELECT 1"
    others: list[Any] = ["SELECT 1 /*route='y'*/", "/* hint */ SELECT 1", 7, None, ["SELECT 1"]]
    with tag(endpoint="x"):
        for statement in others:
            assert commented(statement) == statement


@given(
    st.text()
    | st.sampled_from(["*/ DROP TABLE t; --", "' */;", "%27*/", "\x00", "\\", "*/*/", "a'--\n"]),
    st.text(),
)
def test_no_value_ends_its_comment(value: str, key: str) -> None:
    """SQL injection through a tag: a comment has no special characters between its marks."""
    found = comment_of({key: value, "endpoint": value})
    assert re.fullmatch(r"/\*([A-Za-z0-9_.~%-]*='[A-Za-z0-9_.~%-]*',?)+\*/", found)
    assert "*/" not in found[2:-2]
    values = dict(re.findall(r"([^=,]*)='([^']*)'", found[2:-2]))
    assert unquote(values["endpoint"]) == value
    with tag(endpoint=value):
        statement = commented("SELECT 1")
    assert statement.startswith("SELECT 1")
    assert statement[8:].count("*/") <= 1
