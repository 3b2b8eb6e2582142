# SPDX-License-Identifier: Apache-2.0
"""pyarrow modules whose functions have no type annotations, as `Any` for the type checker.

They are imported when they are first used: a recording uses neither, and would hold 15 MB for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qjoule.lazy_import import LazyModule, pa

__all__ = ("leave_pandas_out", "pc", "pq", "schema")

pc: Any = LazyModule("pyarrow.compute")
pq: Any = LazyModule("pyarrow.parquet")

if TYPE_CHECKING:
    from qjoule.trace import schema
else:
    schema = LazyModule("qjoule.trace.schema")


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
