# SPDX-License-Identifier: Apache-2.0
"""Applications that send arbitrary data, and more than can be read: others are still heard."""

from __future__ import annotations

import json
import mmap
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from other_user import NOBODY, SOMEBODY, other_user
from qjoule.tags import crowd
from qjoule.tags.tagging import TagSource
from qjoule_drivers.channel import Channel
from tag_owners import Everyone, call_in_each, honest
from tag_ring import greet, header, memfd

HELLO = b"qjoule tags 1\n"


def test_processes_that_come_and_go_leave_nothing(path: Path) -> None:
    """With or without a call that is accepted."""
    with closing(TagSource(path, owners=Everyone())) as source:
        for turn in range(200):
            with greet(path, HELLO, [_ring()]) if turn % 2 else closing(Channel(str(path))) as one:
                if isinstance(one, Channel):
                    call_in_each(one, "x")
            source.poll()
        # As for a query that began long after all of them.
        one_query = np.zeros(1, np.int64)
        later_ns = one_query + time.monotonic_ns() + 60_000_000_000
        for _ in range(2):
            source.tags_of([None], one_query, one_query, later_ns)
        known = source._calls
        assert max(len(known._users), len(known._parted), len(known._applications)) <= 2
        assert len(source._listener._by_descriptor) == 0


def test_records_of_any_content_end_nothing(path: Path) -> None:
    """And nobody else's tags are lost because of them."""
    random = np.random.default_rng(7)
    words = np.array([0, 1, 2, 3, 5, 6, 7, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1], "u8")
    with closing(TagSource(path, owners=Everyone())) as source:
        for _ in range(30):
            ring = memfd(header() + bytes(2048 * 64))
            memory = mmap.mmap(ring, 0)
            slots = random.choice(words, (2048, 8))
            slots[:, 6] = random.choice(words[:7], 2048)
            slots[:, 7] = np.arange(1, 2049)
            if random.random() < 0.5:
                slots[random.integers(2048), 7] = random.choice(words)
            memory[4096:] = slots.tobytes()
            memory[64:256] = random.choice(words, 24).tobytes()
            with greet(path, HELLO, [ring]) as client:
                for number in range(1, 8):
                    of = {"db.system.name": "x", "network.transport": "unix", "client.inode": 9}
                    client.send(json.dumps({"connection": number, "of": of}).encode())
                client.send(json.dumps({"tags": 3, "of": {"m": "x"}}).encode())
                source.poll()
                source.reported({}, everything=True)
        honest(path, source)


def _hungry(path: Path) -> Callable[[], tuple[None, object]]:
    def work() -> tuple[None, object]:
        rings, clients = [], []
        for _ in range(crowd.MAX_OF_PROCESS):
            ring = memfd(header(65536) + bytes(65536 * 64))
            rings.append(mmap.mmap(ring, 0))
            slots = np.frombuffer(rings[-1], "u8", offset=4096).reshape(65536, 8)
            slots[:, 7] = np.arange(1, 65537)
            slots[:, 6] = 1
            clients.append(greet(path, HELLO, [ring]))
        return None, (rings, clients)

    return work


@pytest.mark.root
def test_a_user_whose_rings_are_always_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a share of the time; a process that wrote more than can be read in it is dropped."""
    monkeypatch.setattr("qjoule.tags.listener.WHOLE_TURN_NS", 0)
    with (
        closing(TagSource(path)) as source,
        other_user(NOBODY, _hungry(path)),
        other_user(SOMEBODY, lambda: (None, greet(path, HELLO, [_ring()]))),
    ):
        source.poll()
        by_user = [one.uid for one in source._listener._crowd]
        assert by_user.count(NOBODY) == 1 and by_user.count(SOMEBODY) == 1
        honest(path, source)


def _ring() -> int:
    return memfd(header() + bytes(2048 * 64))
