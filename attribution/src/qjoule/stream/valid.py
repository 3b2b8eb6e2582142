# SPDX-License-Identifier: Apache-2.0
"""Which records of the stream are valid, as masks of arrays of `qjoule.contract`."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from qjoule.contract import OwnerKind, TaskEvent

Array = npt.NDArray[Any]
TIME_LIMIT_NS = 1 << 63  #: times are signed in the dataset, to allow subtraction
#: PID_MAX_LIMIT of include/linux/threads.h: pids and tgids have 22 bits.
PID_LIMIT = 1 << 22


def forward(begin_ns: Array, end_ns: Array) -> Array:
    """Mask of the spans that do not end before they begin."""
    mask: Array = (begin_ns <= end_ns) & (end_ns < TIME_LIMIT_NS)
    return mask


def valid_segments(segments: Array) -> Array:
    """Mask of the valid segments: a span of time, a thread, and an owner that is not idle."""
    kind = segments["owner_kind"]
    known = (kind != OwnerKind.IDLE) & (kind <= max(OwnerKind))
    threads = (segments["pid"] < PID_LIMIT) & (segments["tgid"] < PID_LIMIT)
    mask: Array = forward(segments["t0_ns"], segments["t1_ns"]) & known & threads
    return mask


def valid_tasks(tasks: Array) -> Array:
    """Mask of the valid task events."""
    threads = (tasks["pid"] < PID_LIMIT) & (tasks["tgid"] < PID_LIMIT)
    event = (tasks["event"] >= min(TaskEvent)) & (tasks["event"] <= max(TaskEvent))
    mask: Array = threads & event & (tasks["t_ns"] < TIME_LIMIT_NS)
    return mask
