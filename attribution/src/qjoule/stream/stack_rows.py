# SPDX-License-Identifier: Apache-2.0
"""Rows of sampled stacks and of their frames, from the tracer's records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import pyarrow as pa

from qjoule.contract import OwnerKind, StackFlag
from qjoule.stream.names import CompiledCode
from qjoule.trace.columns import Array, instants, numbers
from qjoule.trace.schema import CODE, FRAMES, SAMPLES


def sample_rows(samples: Array, owners: Array) -> pa.Table:
    """Rows of `contract.STACK` records, whose owners are given."""
    segments, flags = samples["segment"], samples["flags"]
    columns = [
        instants(segments["t0_ns"]),
        numbers(segments["cpu"]),
        numbers(owners),
        numbers(segments["query"], segments["owner_kind"] == OwnerKind.QUERY),
        numbers(samples["frame"], samples["frame"] != 0),
        numbers(flags & StackFlag.KERNEL != 0),
        numbers(flags & StackFlag.WHOLE != 0),
    ]
    return pa.Table.from_arrays(columns, schema=SAMPLES)


def frame_rows(calls: Array) -> pa.Table:
    """Rows of `contract.CALL` records."""
    columns = [
        numbers(calls["frame"]),
        numbers(calls["caller"], calls["caller"] != 0),
        numbers(calls["module"]),
        numbers(calls["offset"]),
    ]
    return pa.Table.from_arrays(columns, schema=FRAMES)


def code_rows(code: Sequence[CompiledCode]) -> pa.Table:
    """Rows of what JVMs have compiled."""
    columns = zip(*map(astuple, code), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, CODE, strict=True)]
    return pa.Table.from_arrays(arrays, schema=CODE)
