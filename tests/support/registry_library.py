# SPDX-License-Identifier: Apache-2.0
"""The registry's C headers for tests that compile headers of bpf/, so that they need no build."""

from __future__ import annotations

from pathlib import Path

from qjoule.servers.registry import load
from qjoule.servers.registry_header import headers


def registry_include(directory: Path) -> str:
    """Writes the headers into this directory; returns the compiler option to find them."""
    for name, text in headers(load()).items():
        (directory / name).write_text(text)
    return f"-I{directory}"
