# SPDX-License-Identifier: Apache-2.0
"""The trace dataset on disk: Parquet tables and `meta.json`, their writer and reader."""

from typing import TYPE_CHECKING

from qjoule.trace.meta import Meta

if TYPE_CHECKING:
    from qjoule.trace.reader import Trace

__all__ = ["Meta", "Trace"]


def __getattr__(name: str) -> object:
    """Imports the reader lazily: it needs Arrow, which other modules of this package do not."""
    if name == "Trace":
        from qjoule.trace.reader import Trace  # noqa: PLC0415

        return Trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
