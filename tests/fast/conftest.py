# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by tests of several modules."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule_drivers.channel import Channel


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    """An application's end of the channel; the recorder's is at tags.sock."""
    found = Channel(str(tmp_path / "tags.sock"))
    yield found
    found.close()


@pytest.fixture
def path() -> Iterator[Path]:
    """The path of a socket to which every user may connect."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "tags.sock"
