# SPDX-License-Identifier: Apache-2.0
"""A damaged or hostile calibration file is either refused or a valid calibration."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from calibrations import calibration, trace_meta
from qjoule.machine.calibration import match, parse
from qjoule.machine.identity import of_trace
from qjoule.shapes import sanitise

WHOLE = calibration().to_json()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every value in a document."""
    if isinstance(value, dict):
        below = [places(item, (*path, key)) for key, item in value.items()]
    elif isinstance(value, list):
        below = [places(item, (*path, at)) for at, item in enumerate(value)]
    else:
        below = []
    return [path] * bool(path) + [one for each in below for one in each]


PLACES = places(json.loads(WHOLE))


def is_safe(text: str) -> bool:
    """Not `isprintable`: a character may be newer than this Python's Unicode."""
    return sanitise(text) == text


def judge(text: bytes) -> None:
    """Whatever `parse` accepts can be used without errors."""
    try:
        made = parse(text)
    except ValueError as error:
        assert is_safe(str(error))
        assert len(str(error)) <= 200
        return
    assert parse(made.to_json().encode()) == made
    assert is_safe(made.origin)
    for phrase in (*(found := match(made, of_trace(trace_meta()), trace_meta())).refused,):
        assert is_safe(phrase)
    assert all(is_safe(flag) for flag in found.flagged)
    numbers = [made.coefficients.a, made.coefficients.b, *made.held_out_error.values()]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)


@given(st.sampled_from(PLACES), JSON)
def test_a_value_of_another_kind(path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(WHOLE)
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    judge(json.dumps(document).encode())


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=4), st.integers(0, 40))
def test_bytes_that_changed(at: int, new: bytes, gone: int) -> None:
    text = WHOLE.encode()
    judge(text[:at] + new + text[at + gone :])


@given(st.binary(max_size=200))
def test_any_bytes(text: bytes) -> None:
    judge(text)
