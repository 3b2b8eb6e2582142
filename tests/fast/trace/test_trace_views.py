# SPDX-License-Identifier: Apache-2.0
"""Arrow columns as numpy arrays: values, nulls and offsets, and that pandas is not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from qjoule.trace.arrow import pc
from qjoule.trace.views import is_told, text_scalar, view

TRACE = Path(__file__).parents[1] / "golden" / "traces" / "mysql80-socket"


@pytest.mark.parametrize("type_", [pa.uint8(), pa.int32(), pa.uint64(), pa.float32(), pa.bool_()])
@pytest.mark.parametrize("offset", [0, 3, 9])
def test_values_and_nulls_are_those_of_the_column(type_: pa.DataType, offset: int) -> None:
    values = [1, None, 0, 1, 1, None, 0, 1, 0, None, 1, 0]
    parts = [pa.array(values).cast(type_), pa.array([1, 0, None]).cast(type_)]
    column = pa.chunked_array(parts).slice(offset)
    wanted = [*values, 1, 0, None][offset:]
    assert is_told(column).tolist() == [value is not None for value in wanted]
    found = view(column, 0)
    assert found.tolist() == [value or 0 for value in wanted]
    assert found.dtype == np.dtype(type_.to_pandas_dtype())


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


@pytest.mark.parametrize("by", ["fingerprint", "tag:endpoint", "transaction"])
def test_attribute_does_not_import_pandas(by: str) -> None:
    code = (
        "import sys; from qjoule.engine.attribute import attribute\n"
        "from qjoule.trace.reader import Trace\n"
        "attribute(Trace(sys.argv[1]), [sys.argv[2]]); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(TRACE), by], check=True)
