# SPDX-License-Identifier: Apache-2.0
"""The two families of lexical rules that SQL statements are read by."""

from __future__ import annotations

from enum import Enum


class Lexis(Enum):
    """Where names, strings, numbers and comments begin and end. The value is the half of the
    kernel's table that has the family's transitions.

    ``BACKTICK``: names stand in backticks, strings in either quote with backslash escapes; ``#``
    begins a comment; ``/*! … */`` is code and ``/*+ … */`` a hint. ``STANDARD``: names stand in
    double quotes, strings in single quotes or between ``$tag$``; a backslash escapes in ``E'…'``
    alone; comments nest.
    """

    BACKTICK = 0
    STANDARD = 1
