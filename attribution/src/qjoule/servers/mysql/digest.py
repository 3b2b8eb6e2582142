# SPDX-License-Identifier: Apache-2.0
"""A text like MySQL's DIGEST_TEXT.

It follows what MySQL documents (Reference Manual, "Performance Schema Statement Digests"): tokens
one blank apart, keywords in upper case, identifiers in backticks, literals as `?`, lists as
`(...)`, further rows as `/* , ... */`. MySQL hashes its parser's tokens, which differ by version,
so this id equals no server's DIGEST; it is named `like` wherever it is shown. Which words are
keywords: Reference Manual 8.0, "Keywords and Reserved Words".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from qjoule.shapes.reserved_words import RESERVED
from qjoule.shapes.tokens import Kind, Token, hint_tokens

_VALUE, _ROW, _LONG_ROW = "?", "(?)", "(...)"
_VALUES, _ROWS = "?, ...", " /* , ... */"


def digest_text(tokens: Iterable[Token]) -> str:
    """The normalised text of a statement's tokens, before lists are collapsed."""
    out: list[str] = []
    for token in tokens:
        out.append(_text(token))
        _reduce(out)
    return " ".join(out)


def digest_like(text: str) -> str:
    """SHA-256 of the text, 64 hex digits, as the length of MySQL 8's DIGEST."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _text(token: Token) -> str:
    if token.kind is Kind.WORD:
        upper = token.text.upper()
        return upper if upper in RESERVED else f"`{token.text}`"
    if token.kind is Kind.NAME:
        return "`" + token.text.replace("`", "``") + "`"
    if token.kind in (Kind.HINT, Kind.OPEN_HINT):
        return f"/*+ {digest_text(hint_tokens(token.text))} */"
    return _VALUE if token.kind is Kind.VALUE else token.text


def _reduce(out: list[str]) -> None:
    """Folds the end of the list as tokens arrive, as the server's digest does."""
    if out[-1] == _VALUE and out[-2:-1] == [","] and out[-3:-2] in ([_VALUE], [_VALUES]):
        out[-3:] = [_VALUES]
    elif out[-1] == ")" and out[-3:-2] == ["("] and out[-2] in (_VALUE, _VALUES):
        out[-3:] = [_ROW if out[-2] == _VALUE else _LONG_ROW]
    if out[-1] in (_ROW, _LONG_ROW) and out[-2:-1] == [","]:
        row = out[-1]
        if out[-3:-2] in ([row], [row + _ROWS]):
            out[-3:] = [row + _ROWS]
