# SPDX-License-Identifier: Apache-2.0
"""Reads a part of the local store as it is shipped, and says what is wrong with it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from qjoule.api.arrow import pa, pq
from qjoule.api.rollups import CLOSED_KEY, SLOW, VERSION_KEY, Part, decoded, unreadable

#: A part's bound; an hour of 500 statements has some 400 kB.
MAX_BYTES = 256 << 20


class ValidatedPart(NamedTuple):
    """A part's content. `wrong`: why it must not be shipped."""

    content: bytes = b""
    sha256: str = ""
    wrong: str = ""


def is_open(part: Part, path: Path) -> bool:
    """Whether its hour is not over, as far as its footer can be read."""
    if part.table in SLOW:
        return False
    try:
        metadata = decoded(pq.read_metadata(path).metadata)
    except (OSError, pa.ArrowException, ValueError):
        return False
    return not unreadable(metadata.get(VERSION_KEY)) and metadata.get(CLOSED_KEY) != "1"


def read_part(part: Part, path: Path) -> ValidatedPart:
    """Raises `FileNotFoundError`: it has just been removed."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return ValidatedPart(wrong=f"it is larger than {MAX_BYTES >> 20} MB")
        content = path.read_bytes()
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        metadata = decoded(file.metadata.metadata)
        if wrong := unreadable(metadata.get(VERSION_KEY)):
            return ValidatedPart(wrong=wrong)
        if part.table not in SLOW and metadata.get(CLOSED_KEY) != "1":
            return ValidatedPart(wrong="its hour is open again")
        if wrong := part.contradicts(metadata):
            return ValidatedPart(wrong=wrong)
        for group in range(file.num_row_groups):
            file.read_row_group(group)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        return ValidatedPart(wrong=f"it is damaged: {' '.join(str(error).split())[:200]}")
    return ValidatedPart(content, hashlib.sha256(content).hexdigest())
