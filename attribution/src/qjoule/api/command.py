# SPDX-License-Identifier: Apache-2.0
"""Helpers for commands: options, messages without control characters, the invoking user.

Also file formats: strict TOML and JSON, atomic writes, `runs.jsonl` (the runs of a study, which
the report page also shows), and lazily imported Arrow.
"""

from qjoule.commands import options
from qjoule.commands.lazy_group import LazyGroup
from qjoule.commands.options import known_source
from qjoule.commands.say import say, write_text
from qjoule.commands.without_root import without_root
from qjoule.interrupts import ending_in_order
from qjoule.lazy_import import LazyModule, leave_pandas_out, pa, pc, pq
from qjoule.process import OPENED, READER, as_given
from qjoule.report.study_runs import FACTOR, FILE, Run, read_runs
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.strict_toml import FINITE, convert, read_file, to_key, to_toml
from qjoule.trace.durable import hidden, write_whole
from qjoule.typed_json import read_as

__all__ = [
    "FACTOR",
    "FILE",
    "FINITE",
    "OPENED",
    "READER",
    "LazyGroup",
    "LazyModule",
    "Run",
    "as_given",
    "convert",
    "ending_in_order",
    "hidden",
    "known_source",
    "leave_pandas_out",
    "options",
    "pa",
    "pc",
    "pq",
    "read_as",
    "read_file",
    "read_runs",
    "sanitise",
    "say",
    "shorten",
    "to_key",
    "to_toml",
    "without_root",
    "write_text",
    "write_whole",
]
