# SPDX-License-Identifier: Apache-2.0
"""Columns: numpy's view of Arrow's numbers, and recording without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fake_tracer
from qjoule.trace.columns import distinct, plain

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
