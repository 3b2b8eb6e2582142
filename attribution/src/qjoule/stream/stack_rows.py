# SPDX-License-Identifier: Apache-2.0
"""Rows of sampled stacks and of their frames, from the tracer's records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pyarrow as pa

from qjoule.contract import OwnerKind, StackFlag
from qjoule.stream.names import CompiledCode
from qjoule.trace.columns import Array, instants, names, numbers
from qjoule.trace.schema import CODE, FRAMES, SAMPLED_WAITS, SAMPLES
from qjoule.trace.vocabulary import WAIT_KINDS


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


def wait_rows(waits: Array, ends: Array, has_end: Array, owners: Array) -> pa.Table:
    """Rows of `contract.STACK` records of waits, whose owners and ends (`contract.WAIT_END`) are
    given; where not `has_end`, the end is any.
    """
    segments, probability = waits["segment"], waits["probability"]
    kinds = np.where(has_end, ends["kind"].astype(np.int64), -1)
    columns = [
        instants(segments["t0_ns"]),
        numbers(segments["cpu"]),
        numbers(owners),
        numbers(segments["query"]),
        numbers(waits["frame"], waits["frame"] != 0),
        numbers(waits["flags"] & StackFlag.WHOLE != 0),
        numbers(np.where(probability, probability / 2.0**32, 1.0)),
        numbers(ends["ns"].astype(np.int64), has_end),
        numbers(ends["run_queue_ns"].astype(np.int64), has_end),
        names(kinds, WAIT_KINDS),
    ]
    return pa.Table.from_arrays(columns, schema=SAMPLED_WAITS)


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
