# SPDX-License-Identifier: Apache-2.0
"""Files of tests: a directory that other users can reach, and the mode of new ones."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def for_all_users() -> str:
    """The temporary directory; `/tmp` if that belongs to one user only, as with libpam-tmpdir."""
    place = Path(tempfile.gettempdir()).resolve()
    if all(found.stat().st_mode & stat.S_IXOTH for found in (place, *place.parents)):
        return str(place)
    return "/tmp"


@contextmanager
def umask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)
