# SPDX-License-Identifier: Apache-2.0
"""Statements whose text is not known: of any server.

The kernel side sends `struct qj_unseen` (bpf/qjoule.h) in place of the text. Each statement of each
session that was prepared before tracing began gets a row of its own, so that one that takes much
energy stands out. Where a text was lost, there is a row per cause.
"""

from __future__ import annotations

import numpy as np

from qjoule.contract import UNSEEN, NoText
from qjoule.model.labels import PREPARED_BEFORE, TEXT_LOST
from qjoule.servers.decoding_types import Language

_UNNAMED = (1 << 64) - 1
_NUMBERS = 1 << 32  #: servers count from 0; a hash of a name is rarely smaller than this
_CAUSES = {
    NoText.SEVERAL: "different statements in one request",
    NoText.MESSAGE: "its message could not be read",
    NoText.NONE: "the server has none of that name",
    NoText.EARLIER: "its portal was opened before tracing began",
}


def unseen_text(text: bytes) -> str:
    """What takes the place of the text."""
    if len(text) != UNSEEN.itemsize:
        return TEXT_LOST
    session, statement = np.frombuffer(text, UNSEEN)[0].tolist()
    if not session:
        cause = _CAUSES.get(statement)
        return f"{TEXT_LOST[:-1]}: {cause})" if cause else TEXT_LOST
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
