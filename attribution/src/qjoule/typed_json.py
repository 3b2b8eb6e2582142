# SPDX-License-Identifier: Apache-2.0
"""Converts JSON documents to dataclasses; a value of the wrong type is a `ValueError`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def read_as(kind: Any, value: Any, document: str, where: str = "") -> Any:
    """`value` as `kind`: a dataclass, tuple of one type, dict, optional or scalar.

    Unknown keys of a dataclass are ignored; absent ones have their defaults. `document` is the name
    of the document in errors. Raises `ValueError`.
    """
    origin = get_origin(kind)
    if is_dataclass(kind) and isinstance(value, dict):
        return _read_dataclass(kind, value, document, where)
    if origin in (Union, UnionType):
        some = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if value is None else read_as(some, value, document, where)
    if origin is tuple and isinstance(value, list):
        item = get_args(kind)[0]
        return tuple(read_as(item, one, document, f"{where}[]") for one in value)
    if origin is dict and isinstance(value, dict):
        item = get_args(kind)[1]
        return {key: read_as(item, one, document, f"{where}.{key}") for key, one in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{where or document} has a value of the wrong type")


def _read_dataclass(kind: Any, value: dict[str, Any], document: str, where: str) -> Any:
    hints = get_type_hints(kind)
    known = {
        f.name: read_as(hints[f.name], value[f.name], document, f"{where}.{f.name}".lstrip("."))
        for f in fields(kind)
        if f.name in value
    }
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(f"{where or document} lacks a field") from error
