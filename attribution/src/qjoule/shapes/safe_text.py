# SPDX-License-Identifier: Apache-2.0
"""Makes text that clients chose safe to show: one line, no control over the terminal.

Unicode TR36 and TR55 describe the dangers: control characters begin escape sequences, directional
overrides make text look different from what it is. Each such character becomes U+FFFD, so that it
stays visible and takes one column; whitespace becomes a blank. HTML is escaped elsewhere.
"""

from __future__ import annotations

import re

_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]")
#: C0, DEL, C1; zero width and directional marks, embeddings, overrides and isolates; the soft
#: hyphen; interlinear annotation; byte order mark; tag characters; surrogates; non-characters.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)

ELLIPSIS = "…"


def sanitise(text: str) -> str:
    """The text on one line, every control or directional character replaced by U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub("\ufffd", _SPACES.sub(" ", text))


def text_of(characters: str) -> str:
    """Safe text from characters that are bytes. Invalid UTF-8 is read as cp1252, which servers use
    for Latin-1."""
    if characters.isascii():
        return sanitise(characters)
    text = characters.encode("latin-1")
    try:
        return sanitise(text.decode())
    except UnicodeDecodeError:
        return sanitise(text.decode("cp1252", "replace"))


def shorten(text: str, length: int) -> str:
    """At most `length` characters, the last one an ellipsis if anything was cut."""
    return text if len(text) <= length else text[: max(length - 1, 0)] + ELLIPSIS


def ended(text: str, truncated: bool) -> str:
    """A shape's text without trailing blanks; if truncated, it ends in an ellipsis."""
    return text.rstrip(" " + ELLIPSIS) + ELLIPSIS if truncated else text.rstrip(" ")


WORDS_MAX = 1000  #: characters


def one_line(text: str) -> str:
    """At most WORDS_MAX characters, without NUL, each run of white space as one blank."""
    return " ".join(text.replace("\0", " ").split())[:WORDS_MAX].rstrip()
