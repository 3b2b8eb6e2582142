# SPDX-License-Identifier: Apache-2.0
"""Converts JSON documents to dataclasses; a value of the wrong type is a `ValueError`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints


def read_as(kind: Any, value: Any, document: str, where: str = "") -> Any:
    """`value` as `kind`: a dataclass, tuple (named, of one type, or of a fixed length), dict,
    optional or scalar.

    Unknown keys of a dataclass are ignored; absent ones have their defaults. `document` is the name
    of the document in errors. Raises `ValueError`.
    """
    origin = get_origin(kind)
    if is_dataclass(origin or kind) and isinstance(value, dict):
        return _read_dataclass(kind, value, document, where)
    if origin in (Union, UnionType):
        some = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if value is None else read_as(some, value, document, where)
    if isinstance(value, list):
        return _read_tuple(kind, value, document, where)
    if origin is dict and isinstance(value, dict):
        item = get_args(kind)[1]
        return {key: read_as(item, one, document, f"{where}.{key}") for key, one in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{where or document} has a value of the wrong type")


def _read_tuple(kind: Any, value: list[Any], document: str, where: str) -> Any:
    is_named = hasattr(kind, "_fields")
    kinds = tuple(_hints(kind).values()) if is_named else get_args(kind)
    if not kinds or not (is_named or get_origin(kind) is tuple):
        raise ValueError(f"{where or document} has a value of the wrong type")
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{where or document} has a value of the wrong length")
    items = [read_as(of, one, document, f"{where}[]") for of, one in zip(kinds, value, strict=True)]
    return kind(*items) if is_named else tuple(items)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Types of its fields; those of a generic dataclass by its one argument."""
    found = get_type_hints(get_origin(kind) or kind)
    if args := get_args(kind):
        return {name: args[0] if isinstance(of, TypeVar) else of for name, of in found.items()}
    return found


def _read_dataclass(kind: Any, value: dict[str, Any], document: str, where: str) -> Any:
    hints, made = _hints(kind), get_origin(kind) or kind
    known = {
        f.name: read_as(hints[f.name], value[f.name], document, f"{where}.{f.name}".lstrip("."))
        for f in fields(made)
        if f.name in value
    }
    try:
        return made(**known)
    except TypeError as error:
        raise ValueError(f"{where or document} lacks a field") from error
