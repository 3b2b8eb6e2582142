# SPDX-License-Identifier: Apache-2.0
"""Modules that are imported when something of them is first used.

A recording only captures. It would hold 30 MB for Arrow, which its conversion alone needs, while
functions for both lie in the same modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import hashlib

    import pyarrow as pa

__all__ = ("LazyModule", "hashlib", "pa")


class LazyModule:
    """Stands for a module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found


if not TYPE_CHECKING:
    hashlib = LazyModule("hashlib")  # takes OpenSSL along, 4 MB
    pa = LazyModule("pyarrow")
