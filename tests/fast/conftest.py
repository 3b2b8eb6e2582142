# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by tests of several modules."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qjoule.tags.tagging import TagSource
from qjoule_drivers import channel as channel_module
from qjoule_drivers.channel import Channel
from servers.fake_proc import FakeProc
from tag_source import Everyone, follow


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    """A directory that stands for /proc, without processes."""
    return FakeProc(tmp_path)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    """An application's end of the channel; the recorder's is at tags.sock."""
    opened = Channel(str(tmp_path / "tags.sock"))
    yield opened
    opened.close()


@pytest.fixture
def path() -> Iterator[Path]:
    """The path of a socket to which every user may connect."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "tags.sock"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TagSource]:
    """A recorder that believes everyone."""
    with closing(TagSource(tmp_path / "tags.sock", owners=Everyone())) as recorder:
        yield recorder


@pytest.fixture
def following(channel: Channel, source: TagSource, monkeypatch: pytest.MonkeyPatch) -> Channel:
    """An application that reports only changes to that recorder."""
    monkeypatch.setattr(channel_module, "channel", channel)
    follow(source, channel)
    return channel
