# SPDX-License-Identifier: Apache-2.0
"""What commands share: options, messages without control characters, the user they run as."""

from qjoule.commands import options
from qjoule.commands.lazy_group import LazyGroup
from qjoule.commands.options import known_source
from qjoule.commands.say import say, write_text
from qjoule.commands.without_root import without_root
from qjoule.interrupts import ending_in_order
from qjoule.lazy_import import LazyModule
from qjoule.process import OPENED, READER, as_given
from qjoule.shapes.safe_text import sanitise, shorten

__all__ = [
    "OPENED",
    "READER",
    "LazyGroup",
    "LazyModule",
    "as_given",
    "ending_in_order",
    "known_source",
    "options",
    "sanitise",
    "say",
    "shorten",
    "without_root",
    "write_text",
]
