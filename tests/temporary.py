# SPDX-License-Identifier: Apache-2.0
"""Where tests put files that other users have to reach."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path


def for_all_users() -> str:
    """The directory of temporary files; `/tmp` if that is one user's own, as libpam-tmpdir's is."""
    place = Path(tempfile.gettempdir()).resolve()
    if all(found.stat().st_mode & stat.S_IXOTH for found in (place, *place.parents)):
        return str(place)
    return "/tmp"
