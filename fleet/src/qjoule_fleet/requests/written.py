# SPDX-License-Identifier: Apache-2.0
"""Writes every request to a Parquet file while requests are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from qjoule.api import QjouleError
from qjoule.api.command import OPENED, pq
from qjoule_fleet.requests.join import Request

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "grade", "idle")),
        ("energy_nj", pa.int64()),
        *((name, pa.float64()) for name in ("energy_nj_low", "energy_nj_high")),
        *((name, pa.int64()) for name in ("cpu_ns", "calls", "begin_ns", "end_ns")),
        *((name, pa.list_(pa.string())) for name in ("hosts", "servers", "flags")),
        *(("total_error", pa.float64()), ("error_in_rows", pa.bool_())),
    ],
    metadata={"qjoule.requests": "1"},
)
_ROWS = 20_000  #: rows of a row group


@contextmanager
def request_writer(path: Path | None) -> Iterator[Callable[[Request], object]]:
    """Yields a function that writes a request to the file; `path` None: discards it. The file
    appears when it is complete. Raises `QjouleError` if it cannot be written."""
    if path is None:
        yield lambda _one: None
        return
    opened = path.parent == OPENED  # opened by root; we may not write beside it
    unfinished = path if opened else path.with_name(f".{path.name}.unfinished")
    rows: list[dict[str, Any]] = []
    try:
        with pq.ParquetWriter(unfinished, SCHEMA, compression="zstd") as writer:

            def add(request: Request) -> None:
                rows.append(_row(request))
                if len(rows) >= _ROWS:
                    writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                    rows.clear()

            yield add
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
        if not opened:
            unfinished.replace(path)
    except OSError as error:
        raise QjouleError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if not opened:
            unfinished.unlink(missing_ok=True)


def _row(request: Request) -> dict[str, Any]:
    has_energy = request.grade != "none"
    return {
        "id": request.id,
        "grade": request.grade,
        "idle": request.policy,
        "energy_nj": request.energy_nj if has_energy else None,
        "energy_nj_low": request.ends_nj[0] if has_energy else None,
        "energy_nj_high": request.ends_nj[1] if has_energy else None,
        "cpu_ns": request.cpu_ns,
        "calls": request.calls,
        "begin_ns": request.begin_ns,
        "end_ns": request.end_ns,
        "hosts": list(request.hosts),
        "servers": sorted({part.server for part in request.parts}),
        "flags": list(request.flags),
        "total_error": request.total.relative,
        "error_in_rows": request.total.in_rows,
    }
