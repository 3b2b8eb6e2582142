"""What numbers stand for: definitions of any content."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from qjoule.tags.definitions import MAX_DEFINITIONS, Definitions


@settings(deadline=None, max_examples=300)
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
