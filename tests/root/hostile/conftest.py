"""What tests of hostile neighbours share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="qjoule-hostile-") as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path
