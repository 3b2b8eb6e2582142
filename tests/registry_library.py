"""The registry's C header for tests that compile headers of bpf/, so that they need no build."""

from __future__ import annotations

from pathlib import Path

from qjoule.servers.registry import load
from qjoule.servers.registry_header import header


def registry_include(directory: Path) -> str:
    """Writes ``registry.h`` into this directory; the compiler's option that finds it there."""
    (directory / "registry.h").write_text(header(load()))
    return f"-I{directory}"
