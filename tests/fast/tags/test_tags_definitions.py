# SPDX-License-Identifier: Apache-2.0
"""The definitions of numbers, with arbitrary content."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags.definitions import MAX_DEFINITIONS, Definitions


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["tags", "connection", "of", "db.system.name", "client.inode", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=9,
    ).map(lambda value: json.dumps(value).encode())
)
def test_definitions_of_anything(message: bytes) -> None:
    definitions = Definitions()
    definitions.add(message)
    definitions.connection(1)
    for key, value in definitions.tags(1) or ():
        assert isinstance(key, str)
        assert isinstance(value, str)


def test_deep_and_many_definitions_are_bounded() -> None:
    definitions = Definitions()
    definitions.add(b'{"tags":1,"of":' + b"[" * 5000 + b"]" * 2999)
    definitions.add(b"x" * 9000)
    assert definitions.refused == 2
    for number in range(1, MAX_DEFINITIONS + 1):
        assert not definitions.is_full
        definitions.add(json.dumps({"tags": number, "of": {"a": "b"}}).encode())
    assert definitions.is_full
    assert definitions.tags(0) == ()
    assert definitions.tags(MAX_DEFINITIONS) == (("a", "b"),)


def test_a_connection_s_number_is_given_once() -> None:
    definitions = Definitions()
    of = {"db.system.name": "x", "network.transport": "unix", "client.inode": 1}
    assert definitions.add(json.dumps({"connection": 1, "of": of}).encode()) is not None
    of["client.inode"] = 2
    assert definitions.add(json.dumps({"connection": 1, "of": of}).encode()) is None
    known = definitions.connection(1)
    assert known is not None and known.client == "unix 1"
    assert definitions.refused == 1


def test_the_name_of_a_database_system_is_text() -> None:
    definitions = Definitions()
    definitions.add(b'{"connection":1,"of":{"db.system.name":"\\ud800"}}')
    assert (definitions.refused, definitions.connection(1)) == (1, None)
