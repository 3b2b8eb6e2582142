# SPDX-License-Identifier: Apache-2.0
"""TOML files that people write by hand, read into msgspec Structs, and written.

Structs forbid unknown fields: an unknown key is probably a typing error, and a study that ran for a
night without it would be wasted. An error is one line that names the key and what is allowed.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from qjoule.errors import UsageError

MAX_BYTES = 1 << 20
FINITE = msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)  #: of a float, in Annotated

T = TypeVar("T")


def read_some(path: Path, most: int) -> bytes:
    """A file's first `most` bytes."""
    with path.open("rb") as file:
        return file.read(most)


def read_file(path: Path, read: Callable[[Path, int], bytes] = read_some) -> dict[str, Any]:
    """The tables of a file. `read`: returns a file's first bytes. Raises `UsageError`."""
    try:
        return read_toml(read(path, MAX_BYTES + 1), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def read_toml(content: bytes, file: str) -> dict[str, Any]:
    """The tables in `content`; `file` is what errors call it. Raises `UsageError`."""
    if len(content) > MAX_BYTES:
        raise UsageError(f"{file}: larger than {MAX_BYTES} bytes")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise UsageError(f"{file}: not TOML: nested too deeply") from None
    except ValueError as error:  # UTF-8, TOML, or an integer of too many digits
        raise UsageError(f"{file}: not TOML: {error}") from None


def convert(document: Mapping[str, Any], kind: type[T], file: str) -> T:
    """The document as a Struct. Raises `UsageError`."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError:
        raise UsageError(f"{file}: {_what_is_wrong(document, kind, '')}") from None


def to_toml(document: Mapping[str, Any]) -> str:
    """A file that `read_toml` reads as the same document; None is left out."""
    plain = {key: value for key, value in document.items() if not isinstance(value, dict)}
    text = "".join(f"{line}\n" for line in _pairs(plain))
    for key, table in document.items():
        if isinstance(table, dict):
            text += f"\n[{to_key(key)}]\n" + "".join(f"{line}\n" for line in _pairs(table))
    return text


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{to_key(key)} = {to_value(of)}" for key, of in table.items() if of is not None)


def to_value(value: Any) -> str:
    """A text, number, boolean, list or dictionary as TOML has it."""
    if isinstance(value, dict):
        return f"{{{', '.join(_pairs(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_value, value))}]"
    if isinstance(value, str):  # JSON's escapes are TOML's, which refuses a plain DEL too
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()


def to_key(key: str) -> str:
    """A key as TOML has it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else to_value(key)


def _what_is_wrong(value: Any, kind: Any, name: str) -> str:
    """Names the innermost key whose value does not convert to `kind`, and what it must be."""
    inner: list[tuple[str, Any, Any]] = []
    below = f"{name}." if name else ""
    bare = _bare(kind)
    if isinstance(value, dict) and isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        fields = {field.name: field for field in msgspec.structs.fields(bare)}
        for key in (key for key in value if key not in fields):
            return f"{below}{to_key(key)} is an unknown key: there are {', '.join(fields)}"
        for key in (key for key, field in fields.items() if field.required and key not in value):
            return f"{below}{key} is missing"
        inner = [(f"{below}{key}", item, fields[key].type) for key, item in value.items()]
    elif isinstance(value, dict) and get_origin(bare) is Mapping:
        of = get_args(bare)[1]
        inner = [(f"{below}{to_key(key)}", item, of) for key, item in value.items()]
    elif isinstance(value, list) and get_origin(bare) is tuple:
        inner = [(name, item, get_args(bare)[0]) for item in value]
    for part in inner:
        try:
            msgspec.convert(part[1], part[2])
        except msgspec.ValidationError:
            return _what_is_wrong(part[1], part[2], part[0])
    return f"{name} must be {_allowed(inspect.type_info(kind))}, not {_abbreviated(value)}"


def _abbreviated(value: Any) -> str:
    """In short. Tables and lists may be nested deeper than Python's stack."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = to_value(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _bare(kind: Any) -> Any:
    """Without constraints, and without None."""
    while get_origin(kind) in (Annotated, UnionType, Union):
        kind = get_args(kind)[0]
    return kind


def _allowed(kind: inspect.Type) -> str:
    text = "a table"
    match kind:
        case inspect.Metadata(type=of, extra=extra):
            text = str(extra["must be"]) if extra else _allowed(of)
        case inspect.UnionType(types=types):
            text = ", ".join(_allowed(of) for of in types if not isinstance(of, inspect.NoneType))
        case inspect.LiteralType(values=values):
            text = f"one of {', '.join(map(str, values))}"
        case inspect.IntType():
            text = f"a whole number{_bounds(kind)}"
        case inspect.FloatType():
            text = f"a number{_bounds(kind)}"
        case inspect.BoolType():
            text = "true or false"
        case inspect.StrType():
            text = "a text"
        case inspect.VarTupleType(min_length=least, max_length=most):
            text = f"a list of {least} to {most} values" if most else 'a list, such as ["a", "b"]'
        case inspect.StructType(fields=fields):
            text = f"a table of {', '.join(field.name for field in fields)}"
    return text


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.le is None or kind.le == FINITE.le:
        return ""
    low = f"above {kind.gt:g}" if kind.ge is None else f"from {kind.ge:g}"
    return f" {low} to {kind.le:g}"
