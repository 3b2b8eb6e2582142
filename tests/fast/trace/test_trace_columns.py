# SPDX-License-Identifier: Apache-2.0
"""Columns: numpy's view of Arrow's values and nulls; nothing imports pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fake_tracer
from qjoule.trace.arrow import pc
from qjoule.trace.columns import distinct, plain
from qjoule.trace.views import is_told, text_scalar, view

#: Records a stream from standard input, then converts to pandas anyway.
RECORD = """
import sys
from qjoule.servers.shapes import fingerprint
from qjoule.tags.tagging import TagSource
from qjoule.trace.arrow import leave_pandas_out
from qjoule.stream.recording import record
from qjoule.stream.blocks import Stream
from qjoule.trace.writer import TraceWriter
from pathlib import Path

leave_pandas_out()
tags = TagSource(Path(sys.argv[2]))
record(Stream(sys.stdin.buffer), TraceWriter(sys.argv[1]), fingerprint, reports=tags)
tags.close()
assert "pandas" not in sys.modules

import pyarrow as pa
import pandas as pd
assert pa.table({"n": [1, 2]}).to_pandas()["n"].tolist() == [1, 2]
assert pa.array(pd.Series([1, None])).to_pylist() == [1.0, None]
assert pd.read_parquet(sys.argv[1] + "/queries").size
"""


def test_a_slice_is_seen_from_its_own_start() -> None:
    column = pa.array([5, 6, 7, 8], pa.uint32())
    assert plain(column[1:3], np.uint32).tolist() == [6, 7]
    assert plain(column[4:], np.uint32).dtype == np.uint32


@pytest.mark.parametrize("values", [[], [7], [9, 7, 9, 1 << 63, 7]])
def test_distinct_values_in_order_of_appearance(values: list[int]) -> None:
    given = np.array(values, np.uint64)
    codes, uniques = distinct(given)
    assert uniques[codes].tolist() == values
    assert uniques.tolist() == list(dict.fromkeys(values))


def test_recording_needs_no_pandas(tmp_path: Path) -> None:
    stream = b"".join(fake_tracer.traffic(3))
    words = [sys.executable, "-c", RECORD, str(tmp_path / "t"), str(tmp_path / "tags.sock")]
    done = subprocess.run(words, input=stream, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


TRACE = Path(__file__).parents[1] / "golden" / "traces" / "mysql80-socket"


@pytest.mark.parametrize("type_", [pa.uint8(), pa.int32(), pa.uint64(), pa.float32(), pa.bool_()])
@pytest.mark.parametrize("offset", [0, 3, 9])
def test_values_and_nulls_are_those_of_the_column(type_: pa.DataType, offset: int) -> None:
    values = [1, None, 0, 1, 1, None, 0, 1, 0, None, 1, 0]
    parts = [pa.array(values).cast(type_), pa.array([1, 0, None]).cast(type_)]
    column = pa.chunked_array(parts).slice(offset)
    wanted = [*values, 1, 0, None][offset:]
    assert is_told(column).tolist() == [value is not None for value in wanted]
    values_seen = view(column, 0)
    assert values_seen.tolist() == [value or 0 for value in wanted]
    assert values_seen.dtype == np.dtype(type_.to_pandas_dtype())


def test_a_column_without_rows_and_a_null_without_a_value_for_it() -> None:
    assert view(pa.chunked_array([], pa.int64())).tolist() == []
    assert is_told(pa.chunked_array([], pa.int64())).tolist() == []
    with pytest.raises(ValueError, match="nulls"):
        view(pa.chunked_array([[1, None]]))


def test_one_buffer_is_not_copied() -> None:
    values = np.arange(5)
    assert np.shares_memory(view(pa.chunked_array([pa.array(values)])), values)


def test_a_text_is_a_scalar_of_arrow() -> None:
    tags = pa.array([[("größe", "7")], None], pa.map_(pa.string(), pa.string()))
    assert pc.map_lookup(tags, text_scalar("größe"), "first").to_pylist() == ["7", None]


def test_attribution_does_not_import_pandas() -> None:
    code = (
        "import sys; from qjoule.engine.attribute import attribute\n"
        "from qjoule.trace.reader import Trace\n"
        "for by in 'fingerprint', 'tag:endpoint', 'transaction':\n"
        "    attribute(Trace(sys.argv[1]), [by])\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(TRACE)], check=True)
