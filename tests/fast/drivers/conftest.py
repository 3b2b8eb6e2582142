# SPDX-License-Identifier: Apache-2.0
"""A listener where the fixture `channel` looks for a recorder; no driver is wrapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tag_listener import Listener, listening


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with listening(tmp_path / "tags.sock") as started:
        yield started
