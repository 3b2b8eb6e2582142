# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by tests of hostile neighbours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightly.hostile.bound import Running, running_root_part


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="qjoule-hostile-") as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path


@pytest.fixture
def files(place: Path) -> Path:
    """The directory for the files of a test's candidates."""
    return place


@pytest.fixture
def root() -> Iterator[Running]:
    """A root part whose command is the test."""
    with running_root_part() as running:
        yield running
