# SPDX-License-Identifier: Apache-2.0
"""Traces: read, view and write one (TRACE_FORMAT.md)."""

from qjoule.commands.conversion import readable, what_was_written
from qjoule.trace.columns import Array
from qjoule.trace.meta import Cpu, DomainInfo, Imported, Meta, Server, read_meta
from qjoule.trace.reader import BATCH_ROWS, Trace
from qjoule.trace.schema import MORE
from qjoule.trace.several import counted_twice, open_several
from qjoule.trace.views import text_scalar, view
from qjoule.trace.vocabulary import DOMAIN_KINDS
from qjoule.trace.writer import TraceWriter

__all__ = [
    "BATCH_ROWS",
    "DOMAIN_KINDS",
    "MORE",
    "Array",
    "Cpu",
    "DomainInfo",
    "Imported",
    "Meta",
    "Server",
    "Trace",
    "TraceWriter",
    "counted_twice",
    "open_several",
    "read_meta",
    "readable",
    "text_scalar",
    "view",
    "what_was_written",
]
