# SPDX-License-Identifier: Apache-2.0
"""Small files of /proc and /sys."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str:
    """The file's text without surrounding space; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
