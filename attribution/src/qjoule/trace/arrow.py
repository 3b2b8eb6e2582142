"""pyarrow's modules whose functions carry no type annotations, as `Any` for the type checker."""

from __future__ import annotations

from typing import Any

import pyarrow.compute
import pyarrow.parquet

pc: Any = pyarrow.compute
pq: Any = pyarrow.parquet
