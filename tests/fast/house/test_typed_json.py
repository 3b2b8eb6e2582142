# SPDX-License-Identifier: Apache-2.0
"""JSON as dataclasses: what has another type or length is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import pytest

from qjoule.typed_json import read_as

_V = TypeVar("_V")


class Pair(NamedTuple):
    name: str
    size: float


@dataclass(frozen=True, slots=True)
class Width(Generic[_V]):
    low: _V


@dataclass(frozen=True)
class All:
    ends: tuple[float, float]
    names: tuple[str, ...] = ()
    pair: Pair | None = None
    width: Width[float] | None = None


def test_tuples_of_each_kind_are_read() -> None:
    value = {"ends": [1, 2.5], "names": ["a"], "pair": ["b", 3], "width": {"low": 4}}
    assert read_as(All, value, "x") == All((1.0, 2.5), ("a",), Pair("b", 3.0), Width(4.0))


@pytest.mark.parametrize(
    "value",
    [
        *({"ends": [1]}, {"ends": [1, 2, 3]}, {"ends": [1, "2"]}, {"ends": {"0": 1}}, {}, []),
        {"ends": [1, 2], "names": [1]},
        {"ends": [1, 2], "pair": ["b"]},
        {"ends": [1, 2], "pair": ["b", True]},
        {"ends": [1, 2], "width": {"low": "4"}},
        {"ends": [1, 2], "width": [4]},
    ],
)
def test_others_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"x|ends|names|pair|width"):
        read_as(All, value, "x")
