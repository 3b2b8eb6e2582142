# SPDX-License-Identifier: Apache-2.0
"""Statements that were prepared before tracing began and whose text is not known: of any server.

The kernel side sends `struct qj_unseen` (bpf/qjoule.h) in place of the text. Each statement of each
session gets a row of its own, so that one that takes much energy stands out.
"""

from __future__ import annotations

import numpy as np

from qjoule.contract import UNSEEN
from qjoule.model.labels import PREPARED_BEFORE
from qjoule.servers.decoding_types import Language

_UNNAMED = (1 << 64) - 1
_NUMBERS = 1 << 32  #: servers count from 0; a hash of a name is rarely smaller than this


def unseen_text(text: bytes) -> str:
    """What takes the place of the text."""
    if len(text) != UNSEEN.itemsize:
        return PREPARED_BEFORE
    session, statement = np.frombuffer(text, UNSEEN)[0].tolist()
    if statement == _UNNAMED:
        which = "the unnamed statement"
    elif statement < _NUMBERS:
        which = f"statement {statement}"
    else:
        which = f"statement 0x{statement:016x}"
    return f"{PREPARED_BEFORE[:-1]}: {which} of session {session})"


def _shape(text: bytes, truncated: bool) -> tuple[str, bool]:
    return unseen_text(text), truncated


LANGUAGE = Language(shape=_shape, summary=str)
