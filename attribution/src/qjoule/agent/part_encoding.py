# SPDX-License-Identifier: Apache-2.0
"""Writes tables as Parquet, small and readable by every engine."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from qjoule.lazy_import import pq

#: The Parquet column of the lists' elements.
_LATENCY = "latency.list.element"
#: Rows are ordered by these: equal values lie together.
_ORDER = ("kind", "server", "database", "fingerprint", "name", "minute")


def parquet(table: pa.Table, metadata: Mapping[str, str], *, closed: bool = False) -> pa.Buffer:
    """A part as it lies on disk. `metadata`: the file's key-value metadata.

    A `closed` part is written once and takes longer to compress. Pages have checksums.
    """
    keys = [name for name in _ORDER if name in table.schema.names]
    ordered = table.sort_by([(name, "ascending") for name in keys]) if "minute" in keys else table
    # A dictionary of numbers that hardly repeat would make the file a third larger.
    texts = [one.name for one in table.schema if one.type == pa.string()]
    # Integers as differences take an eighth less space, and less time. Spark and DuckDB read them,
    # unlike floats as split streams of bytes, which Spark refuses.
    integers = [one.name for one in table.schema if pa.types.is_integer(one.type)]
    if "latency" in table.schema.names:
        integers.append(_LATENCY)
    sink = pa.BufferOutputStream()
    pq.write_table(
        ordered.replace_schema_metadata(dict(metadata)),
        sink,
        compression="zstd",
        compression_level=12 if closed else 3,
        write_page_checksum=True,
        use_dictionary=texts,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )
    return sink.getvalue()
