# SPDX-License-Identifier: Apache-2.0
"""Traces: read, view and write one (TRACE_FORMAT.md); the event contract (docs/architecture.md),
for traces made of other tools' recordings."""

from qjoule.commands.conversion import readable, what_was_written
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
from qjoule.stream.record import record
from qjoule.stream.statements import MAX_SHAPES
from qjoule.trace.columns import Array, text_scalar, view
from qjoule.trace.meta import Cpu, DomainInfo, Imported, Meta, Server
from qjoule.trace.meta_file import read_meta
from qjoule.trace.reader import BATCH_ROWS, Trace
from qjoule.trace.schema import MORE
from qjoule.trace.several import counted_twice, open_several
from qjoule.trace.vocabulary import DOMAIN_KINDS
from qjoule.trace.writer import TraceWriter

__all__ = [
    "BATCH_ROWS",
    "CONTRACT_VERSION",
    "CPU",
    "DOMAIN",
    "DOMAIN_KINDS",
    "END",
    "ENERGY",
    "HELLO",
    "LOSS_COUNT",
    "MAX_SHAPES",
    "MORE",
    "QUERY",
    "SEGMENT",
    "SHAPE_OTHER",
    "TASK",
    "TEXT",
    "TRACER_CPU",
    "WHOLE_PACKAGE",
    "Array",
    "AttachMode",
    "Block",
    "Command",
    "Cpu",
    "DomainInfo",
    "Frame",
    "Grade",
    "Imported",
    "Loss",
    "Meta",
    "Mode",
    "OwnerKind",
    "QueryFlag",
    "Server",
    "Stream",
    "StreamContext",
    "TaskEvent",
    "Trace",
    "TraceWriter",
    "counted_twice",
    "open_several",
    "read_meta",
    "readable",
    "record",
    "text_scalar",
    "view",
    "what_was_written",
]
