# SPDX-License-Identifier: Apache-2.0
"""A recorder that believes everyone, and an application that reports only changes to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qjoule.tags.tagging import TagSource
from qjoule_drivers import channel as channel_module
from qjoule_drivers.channel import Channel
from tag_source import Everyone, follow


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone())) as recorder:
        yield recorder


@pytest.fixture
def following(channel: Channel, source: TagSource, monkeypatch: pytest.MonkeyPatch) -> Channel:
    monkeypatch.setattr(channel_module, "channel", channel)
    follow(source, channel)
    return channel
