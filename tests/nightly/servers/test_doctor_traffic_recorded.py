# SPDX-License-Identifier: Apache-2.0
"""`doctor` traces running servers for a moment, and says what it saw of their requests."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from servers.process import DatabaseServer
from tracing.recording import qjoule

pytestmark = [pytest.mark.root, pytest.mark.server]


def _asked(*options: str) -> dict[str, Any]:
    done = qjoule("doctor", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _of(found: dict[str, Any], server: DatabaseServer) -> dict[str, Any]:
    (one,) = (each for each in found["servers"] if server.pid in each["pids"])
    return dict(one)


def test_requests_are_seen_where_there_are_some(redis: DatabaseServer) -> None:
    ended = threading.Event()

    def ask() -> None:
        with redis.connect() as client:
            while not ended.is_set():
                client.get("doctor:1")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        found = _asked()
    finally:
        ended.set()
        asking.join()
    assert found["traffic"]["problem"] == ""
    assert found["traffic"]["seconds"] == 1.0
    seen = _of(found, redis)["traffic"]
    assert seen["requests"] > 0
    assert seen["rungs"] == ["socket"]
    assert seen["proven_exact"] is (found["traffic"]["alarm"] == "")
