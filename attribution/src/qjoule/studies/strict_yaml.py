# SPDX-License-Identifier: Apache-2.0
"""YAML in which unknown keys are errors; each error gives its line.

It is for files that people write by hand. An unknown key is probably a typing error, and a study
that ran for a night without it would be wasted. Words follow YAML 1.2: `on` and `no` are strings,
not booleans, so that a setting of a server can be `on`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import Any

import yaml

from qjoule.errors import UsageError
from qjoule.studies.workload import Value

TEXT_MAX = 1 << 20  #: characters


_TAG = "tag:yaml.org,2002:"
#: What a plain word is: YAML 1.2's core schema, and `1_000` is a number.
_WORDS = (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("int", r"[-+]?[0-9][0-9_]*\Z", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z",
        "-+.0123456789",
    ),
    ("null", r"(?:~|null|Null|NULL|)\Z", "~nN"),
)


class _Loader(yaml.SafeLoader):
    """Without the words of YAML 1.1: `on`, `12:30`, `0x1f`, `2026-01-01`."""


class _Dumper(yaml.SafeDumper):
    """Puts into quotes what either version of YAML would not read as a word."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Line ends that are no line feed are escaped: plain, they would be read as spaces."""
        style = '"' if any(one in data for one in "\x85\u2028\u2029\ufeff") else None
        return self.represent_scalar(_TAG + "str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in _WORDS:
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(_TAG + _name, re.compile(_pattern), list(_first))
_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"\Z"), [""])


def to_text(document: dict[str, Any]) -> str:
    """A file that `read_section` reads as the same document."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=99)
    return text


def read_section(text: str, file: str) -> Section:
    """The mapping that a file is. Raises `UsageError`, with the line where there is one."""
    if len(text) > TEXT_MAX:
        raise UsageError(f"{file} is larger than {TEXT_MAX >> 20} MiB: that is no plan")
    try:
        node = yaml.compose(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or "it cannot be read"
        raise UsageError(f"{file}{where} is no YAML: {what}") from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{file} is no YAML that can be read: {error}") from None
    if node is None:
        raise UsageError(f"{file} is empty: see qjoule/studies/README.md for a plan")
    return Section(Item(node, "", file))


class Item:
    """One value: what it is, and where it stands."""

    def __init__(self, node: yaml.Node, name: str, file: str) -> None:
        self.node, self.name, self.file = node, name, file

    def wrong(self, what: str) -> UsageError:
        """An error about this value; `what` says what is allowed."""
        where = f"{self.file}, line {self.node.start_mark.line + 1}"
        return UsageError(f"{where}: {self.name or 'the plan'}: {what}")

    def value(self) -> Value:
        """A word, a number, true or false. A number that no double holds is refused."""
        found = self._scalar()
        if found is None:
            raise self.wrong("is empty: give a word, a number, true or false")
        return found

    def text(self) -> str:
        found = self.value()
        if not isinstance(found, str):
            raise self.wrong(f"is {_shown(found)}: give a word (in quotes, if it looks like one)")
        return found

    def choice(self, allowed: Collection[str]) -> str:
        found = self.text()
        if found not in allowed:
            raise self.wrong(f"is {_shown(found)}: allowed are {', '.join(allowed)}")
        return found

    def boolean(self) -> bool:
        found = self.value()
        if not isinstance(found, bool):
            raise self.wrong(f"is {_shown(found)}: give true or false")
        return found

    def integer(self, least: int = 0, most: int = 2**31) -> int:
        found = self.value()
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self.wrong(f"is {_shown(found)}: give a whole number from {least} to {most}")
        return found

    def number(self, least: float = 0.0, most: float = 1e9) -> float:
        found = self.value()
        if isinstance(found, bool | str) or not least <= found <= most:
            raise self.wrong(f"is {_shown(found)}: give a number from {least:g} to {most:g}")
        return float(found)

    def ratio(self) -> float:
        """`5%` or `0.05`: above 0, at most 1."""
        found = self.value()
        try:
            number = parse_ratio(str(found))
        except ValueError:
            raise self.wrong(f"is {_shown(found)}: give a share such as 5% or 0.05") from None
        return number

    def list(self) -> list[Item]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong("give a list, such as [a, b]")
        return [Item(node, self.name, self.file) for node in self.node.value]

    def is_section(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def section(self, allowed: Collection[str] | None = None) -> Section:
        return Section(self, allowed)

    def _scalar(self) -> Value | None:
        node = self.node
        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong("give one word or number, not a list or a mapping")
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        text = node.value
        try:
            if kind == "int":
                return int(text)
            if kind == "float" and math.isfinite(float(text)):
                return float(text)
        except ValueError:
            kind = "float"
        if kind in ("int", "float"):
            raise self.wrong("is a number that cannot be held")
        if kind == "bool":
            return bool(text.lower() == "true")
        if kind == "null":
            return None
        if kind != "str":
            raise self.wrong(f"has the tag {node.tag}: give a plain word or number")
        return str(text)


class Section:
    """A mapping. With `allowed`, any other key is refused."""

    def __init__(self, item: Item, allowed: Collection[str] | None = None) -> None:
        self.item = item
        if not isinstance(item.node, yaml.MappingNode):
            more = f" of {', '.join(allowed)}" if allowed else ""
            raise item.wrong(f"give a mapping{more}, such as 'key: value'")
        self._items: dict[str, Item] = {}
        for key, node in item.node.value:
            name = Item(key, f"a key of {item.name or 'the plan'}", item.file).value()
            path = f"{item.name}.{name}" if item.name else str(name)
            found = Item(node, path, item.file)
            place = Item(key, path, item.file)
            if allowed is not None and name not in allowed:
                raise place.wrong(f"unknown key; allowed are {', '.join(allowed)}")
            if str(name) in self._items:
                raise place.wrong("is there twice")
            self._items[str(name)] = found

    def only(self, *allowed: str) -> Section:
        """The same, with any other key refused."""
        return Section(self.item, allowed)

    def get(self, key: str) -> Item | None:
        """The value of a key; None if it is not there, or empty."""
        item = self._items.get(key)
        empty = item is not None and item.node.tag == "tag:yaml.org,2002:null"
        return None if empty else item

    def items(self) -> Iterator[tuple[str, Item]]:
        return iter(self._items.items())

    def values(self) -> dict[str, Value]:
        return {name: item.value() for name, item in self.items()}


def parse_ratio(text: str) -> float:
    """`5%` or `0.05` as 0.05. Raises `ValueError` outside of (0, 1]."""
    percent = text.strip().endswith("%")
    number = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    if not 0 < number <= 1:
        raise ValueError(text)
    return number


def parse_value(text: str, file: str = "the command line") -> Value:
    """A word of the command line as it would be read in a plan: `10` is a number, `"10"` a word."""
    try:
        node = yaml.compose(text, _Loader) if text.strip() else None
    except yaml.YAMLError:
        node = None
    if not isinstance(node, yaml.ScalarNode):
        return text
    return Item(node, text, file).value() if node.tag != "tag:yaml.org,2002:null" else text


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value).lower()
    return text if len(text) <= 60 else text[:59] + "…"
