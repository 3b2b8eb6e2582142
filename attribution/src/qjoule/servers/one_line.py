# SPDX-License-Identifier: Apache-2.0
"""Turns messages with a stranger's text into one line."""

from __future__ import annotations

WORDS_MAX = 1000  #: characters


def one_line(text: str) -> str:
    """At most WORDS_MAX characters, without NUL, each run of white space as one blank."""
    return " ".join(text.replace("\0", " ").split())[:WORDS_MAX].rstrip()
