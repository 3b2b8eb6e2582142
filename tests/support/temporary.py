# SPDX-License-Identifier: Apache-2.0
"""A directory for test files that other users have to reach."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path


def for_all_users() -> str:
    """The temporary directory; `/tmp` if that belongs to one user only, as with libpam-tmpdir."""
    place = Path(tempfile.gettempdir()).resolve()
    if all(found.stat().st_mode & stat.S_IXOTH for found in (place, *place.parents)):
        return str(place)
    return "/tmp"
