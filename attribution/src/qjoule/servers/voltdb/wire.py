# SPDX-License-Identifier: Apache-2.0
"""Decodes VoltDB's data. The shape of a call is the name of its procedure."""

from __future__ import annotations

from qjoule.servers.decoding_types import Decoding, Language
from qjoule.servers.registry import dialect
from qjoule.shapes.safe_text import ended, sanitise
from qjoule.shapes.summary import bounded


def procedure_shape(name: bytes, truncated: bool) -> tuple[str, bool]:
    """Returns the procedure's name, and whether it is cut."""
    return sanitise(ended(name.decode("latin-1"), truncated)), truncated


LANGUAGE = Language(shape=procedure_shape, summary=lambda text: bounded(text.split(" ")))


DECODING = Decoding(languages={dialect("voltdb"): LANGUAGE})
