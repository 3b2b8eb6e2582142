# SPDX-License-Identifier: Apache-2.0
"""`doctor` traces running servers for a moment, and says what it saw of their requests."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from servers.process import DatabaseServer
from tracing import redis_story as day
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


def test_a_silent_server_proves_nothing(redis: DatabaseServer) -> None:
    found = _asked("--traffic", "0.2")
    assert found["traffic"]["problem"] == ""
    assert _of(found, redis)["traffic"]["proven_exact"] is False


def test_it_can_be_left_out(redis: DatabaseServer) -> None:
    day.benchmark(redis, "-n", "10", "get", "x:1")
    found = _asked("--traffic", "0")
    assert "traffic" not in found
    assert "traffic" not in _of(found, redis)
