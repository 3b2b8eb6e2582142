# SPDX-License-Identifier: Apache-2.0
"""Lists of values as one value: IN (?, ?), ARRAY[?, ?], VALUES (?), (?).

An element is plain if it is a value, with or without a type, or a list of such. A list of plain
elements becomes `(?+)`. Of other elements, those that are all alike become one. Of the rows after
VALUES, the first stands for all, except for those with a subquery that no row before has.

One pass, linear in the number of tokens however deep they are nested: what is kept of a closed list
is short, and longer elements are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from qjoule.shapes.tokens import Kind, Token

MANY = Token(Kind.VALUE, "?+")
_OPENERS = {"(": ")", "[": "]"}
_ROWS_AFTER = frozenset({"values", "value"})
_ELEMENT_MAX = 16  #: tokens of a plain element
_ALIKE_MAX = 64  #: tokens of an element or row that is compared with others
#: Words that stand before a value without making it a typed literal.
_NO_TYPE = frozenset({"select", "all", "distinct", "values", "exists", "not"})
_SEVERAL_WORDS = frozenset({"timestamp", "time", "double", "character", "national", "bit"})


class _Use(Enum):
    OTHER = auto()  #: a function's arguments, a subquery, a parenthesis
    LIST = auto()
    ROW = auto()  #: of VALUES


@dataclass(slots=True)
class _Group:
    """An open bracket. All positions are in the output."""

    use: _Use
    close: str
    opened: int  #: its bracket
    row: int = 0  #: where its row begins: at the bracket or at ROW
    element: int = 0  #: where the current element begins
    plain: bool = True  #: all elements so far
    first: list[Token] | None = None  #: the first element, if short
    alike: bool = True  #: all elements so far equal the first
    elements: int = 0
    rows_until: int = -2  #: a row of VALUES within this group ends here
    rows: set[tuple[Token, ...]] = field(default_factory=set)


def lists_collapsed(tokens: Sequence[Token], truncated: bool) -> list[Token]:
    """The tokens with lists collapsed.

    Lists that the end of a truncated statement leaves open are collapsed as if they were complete,
    so that all cuts of a long list have the same shape.
    """
    out: list[Token] = []
    groups = [_Group(_Use.OTHER, "", -1)]
    sign = Kind.SIGN
    for token in tokens:
        out.append(token)
        if token.kind is not sign:
            continue
        text = token.text
        if text in _OPENERS:
            groups.append(_opened(out, groups[-1], text))
        elif text == ",":
            if groups[-1].use is not _Use.OTHER:
                _element_ends(out, groups[-1], len(out) - 1)
                groups[-1].element = len(out)
        elif text == groups[-1].close:
            group = groups.pop()
            if group.use is not _Use.OTHER:
                out.pop()
                _close(out, group)
                out.append(token)
                if group.use is _Use.ROW:
                    _row_ends(out, group, groups[-1])
        elif text == ";":
            groups[-1].rows_until = -2
    if truncated:
        _cut(out, groups)
    return out


def _word(out: Sequence[Token], at: int) -> str:
    return out[at].text if 0 <= at < len(out) and out[at].kind is Kind.WORD else ""


def _opened(out: list[Token], around: _Group, bracket: str) -> _Group:
    """The group that the bracket at the end of the output opens."""
    at = len(out) - 1
    group = _Group(_Use.OTHER, _OPENERS[bracket], at, at, at + 1)
    before = _word(out, at - 1)
    begins = at == around.element and around.use is not _Use.OTHER
    if bracket == "[":
        group.use = _Use.LIST if before == "array" or begins else _Use.OTHER
        return group
    if before == "row":
        group.row = at - 1
        before = _word(out, at - 2)
    if before in _ROWS_AFTER:
        group.use = _Use.ROW
        around.rows = set()
    elif around.rows_until == group.row - 1 and out[group.row - 1].text == ",":
        group.use = _Use.ROW
    elif before == "in" or begins or (around.use is _Use.LIST and group.row == around.element):
        group.use = _Use.LIST
    return group


def _element_ends(out: list[Token], group: _Group, end: int) -> None:
    length = end - group.element
    group.elements += 1
    if group.plain:
        group.plain = length <= _ELEMENT_MAX and _is_plain(
            out[group.element : end], group.use is _Use.ROW
        )
    if group.plain or not group.alike:
        return
    if length > _ALIKE_MAX or (group.elements > 1 and group.first is None):
        group.alike = False
        return
    element = _unspaced(out[group.element : end])
    if group.first is None:
        group.first = element
    elif element != group.first:
        group.alike = False


def _close(out: list[Token], group: _Group) -> None:
    """Collapses the elements of a list or row; its closing bracket is not in the output."""
    inside = group.opened + 1
    if len(out) == inside:
        return
    if group.element < len(out):  # not after a comma at which the statement is cut
        _element_ends(out, group, len(out))
    if group.plain:
        out[inside:] = [MANY]
    elif group.use is _Use.LIST and group.alike and group.elements > 1:
        first = group.first or []
        if any(token.kind is Kind.VALUE for token in first):
            del out[inside + len(first) :]


def _row_ends(out: list[Token], group: _Group, around: _Group) -> None:
    """Keeps a row of VALUES if it is the first, or has a subquery of its own."""
    row = tuple(_unspaced(out[group.row :])) if len(out) - group.row <= _ALIKE_MAX else ()
    if around.rows:
        subquery = any(t.kind is Kind.WORD and t.text == "select" for t in row)
        if row in around.rows or not subquery:
            del out[group.row - 1 :]
            around.rows_until = len(out)
            return
    around.rows.add(row)
    around.rows_until = len(out)


def _cut(out: list[Token], groups: list[_Group]) -> None:
    """The end of a truncated statement: closes what is open, without the brackets."""
    while groups:
        group = groups.pop()
        listed = group.use is not _Use.OTHER or group.rows_until == len(out) - 1
        if listed and out[-1].kind is Kind.SIGN and out[-1].text == ",":
            out.pop()
        if group.use is _Use.ROW and groups[-1].rows:
            del out[group.row - 1 :]
            groups[-1].rows_until = -2
        elif group.use is not _Use.OTHER:
            _close(out, group)


def _unspaced(tokens: Sequence[Token]) -> list[Token]:
    return [Token(token.kind, token.text) for token in tokens]


def _is_plain(element: Sequence[Token], in_row: bool) -> bool:  # noqa: PLR0911
    """Whether an element is a value, with or without a type, or a collapsed list of values."""
    for at, token in enumerate(element):
        if at and token.kind is Kind.SIGN and token.text == "::":
            return _is_type(element[at + 1 :]) and _is_plain(element[:at], in_row)
    match [token.text if token.kind is not Kind.VALUE else "?" for token in element]:
        case ["?"]:
            return True
        case ["default"]:
            return in_row
        case ["(", "?", ")"] | ["row", "(", "?", ")"] | ["[", "?", "]"] | ["array", "[", "?", "]"]:
            return True
        case ["cast", "(", *inner, ")"] if "as" in inner:
            split = inner.index("as")
            return _is_plain(element[2 : 2 + split], False) and _is_type(element[3 + split : -1])
        case ["interval", "?", _] | ["convert", "(", "?", "using" | ",", _, ")"]:
            return True
        case [first, *words, "?"] if element[0].kind is Kind.WORD and first not in _NO_TYPE:
            return not words or (
                first in _SEVERAL_WORDS and all(t.kind is Kind.WORD for t in element[1:-1])
            )
    return False


def _is_type(tokens: Sequence[Token]) -> bool:
    """Whether these are the names, lengths and brackets of types."""
    return bool(tokens) and all(
        token.kind is not Kind.SIGN or token.text in (".", "(", ")", "[", "]", "::", ",")
        for token in tokens
    )
