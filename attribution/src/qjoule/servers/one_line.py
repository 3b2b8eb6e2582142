# SPDX-License-Identifier: Apache-2.0
"""Messages that hold what a stranger wrote, for people to read as one line."""

from __future__ import annotations

WORDS_MAX = 1000  #: characters


def one_line(text: str) -> str:
    """At most WORDS_MAX characters, without NUL, every run of white space one blank."""
    return " ".join(text.replace("\0", " ").split())[:WORDS_MAX].rstrip()
