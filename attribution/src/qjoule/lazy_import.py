# SPDX-License-Identifier: Apache-2.0
"""Modules that are imported when something of them is first used.

A recording only captures. It would hold 30 MB for Arrow, which its conversion alone needs, while
functions for both lie in the same modules. The functions of `pc` and `pq` have no type annotations,
so these are `Any`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

try:
    from _blake2 import blake2b  # hashlib's own: hashlib itself loads OpenSSL, 4 MB
except ImportError:  # no CPython
    from hashlib import blake2b

if TYPE_CHECKING:
    import hashlib

    import pyarrow as pa

__all__ = (
    "LazyModule",
    "blake2b",
    "hashlib",
    "leave_masks_out",
    "leave_pandas_out",
    "pa",
    "pc",
    "pq",
)


class LazyModule:
    """Stands for a module, which is imported when one of its attributes is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


if not TYPE_CHECKING:
    hashlib = LazyModule("hashlib")  # loads OpenSSL, 4 MB
    pa = LazyModule("pyarrow")
pc: Any = LazyModule("pyarrow.compute")
pq: Any = LazyModule("pyarrow.parquet")


def leave_pandas_out() -> None:
    """Keeps pyarrow from importing pandas, which saves some 0.3 s of CPU time and 35 MB.

    When the first array is made, pyarrow checks once whether its input could be pandas'. If it
    finds no pandas, it looks again only where pandas is required (`to_pandas`).
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([], pa.null())
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """A module finder (importlib.abc.MetaPathFinder) that makes pandas appear missing."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def leave_masks_out() -> None:
    """Keeps numpy from importing `numpy.ma`, 1.3 MB, for a process without masked arrays.

    Functions such as `np.unique` and `np.median` ask it whether an array is one.
    """
    if "numpy.ma" not in sys.modules:
        masks: Any = LazyModule("numpy.ma")
        masks.is_masked = masks.isMaskedArray = lambda _array: False
        importlib.import_module("numpy").__dict__["ma"] = masks
