# SPDX-License-Identifier: Apache-2.0
"""The trace dataset on disk: Parquet tables and `meta.json`, their writer and reader."""

from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

__all__ = ["Meta", "Trace"]
