# SPDX-License-Identifier: Apache-2.0
"""VoltDB's requests are calls of procedures; the shape of a call is the procedure's name."""

from __future__ import annotations

from qjoule.servers.decoding_types import Language
from qjoule.shapes.safe_text import ended, sanitise
from qjoule.shapes.summary import bounded


def procedure_shape(name: bytes, truncated: bool) -> tuple[str, bool]:
    """The procedure's name, and whether it is cut."""
    return sanitise(ended(name.decode("latin-1"), truncated)), truncated


LANGUAGE = Language(shape=procedure_shape, summary=lambda text: bounded(text.split(" ")))
