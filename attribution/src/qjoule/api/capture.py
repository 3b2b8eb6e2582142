# SPDX-License-Identifier: Apache-2.0
"""The event contract (docs/architecture.md), for traces made of other tools' recordings."""

from qjoule.contract import (
    CONTRACT_VERSION,
    CPU,
    DOMAIN,
    END,
    ENERGY,
    HELLO,
    LOSS_COUNT,
    QUERY,
    SEGMENT,
    SHAPE_OTHER,
    TASK,
    TEXT,
    TRACER_CPU,
    WHOLE_PACKAGE,
    AttachMode,
    Block,
    Command,
    Grade,
    Loss,
    Mode,
    OwnerKind,
    QueryFlag,
    TaskEvent,
)
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.context import StreamContext
from qjoule.stream.recording import record
from qjoule.stream.statements import MAX_SHAPES

__all__ = [
    "CONTRACT_VERSION",
    "CPU",
    "DOMAIN",
    "END",
    "ENERGY",
    "HELLO",
    "LOSS_COUNT",
    "MAX_SHAPES",
    "QUERY",
    "SEGMENT",
    "SHAPE_OTHER",
    "TASK",
    "TEXT",
    "TRACER_CPU",
    "WHOLE_PACKAGE",
    "AttachMode",
    "Block",
    "Command",
    "Frame",
    "Grade",
    "Loss",
    "Mode",
    "OwnerKind",
    "QueryFlag",
    "Stream",
    "StreamContext",
    "TaskEvent",
    "record",
]
