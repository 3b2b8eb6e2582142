# SPDX-License-Identifier: Apache-2.0
"""`doctor` traces running servers for a moment, and says what it saw of their requests."""

from __future__ import annotations

import json
import threading

import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import qjoule

pytestmark = [pytest.mark.root, pytest.mark.server]


def test_requests_are_seen_where_there_are_some(redis: DatabaseServer) -> None:
    ended = threading.Event()

    def work() -> None:
        with redis.connect() as client:
            while not ended.is_set():
                client.get("doctor:1")

    client = threading.Thread(target=work)
    client.start()
    try:
        done = qjoule("doctor", "--json")
    finally:
        ended.set()
        client.join()
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    traffic = document["traffic"]
    assert (traffic["problem"], traffic["seconds"]) == ("", 1.0)
    (seen,) = (one["traffic"] for one in document["servers"] if redis.pid in one["pids"])
    assert seen["requests"] > 0
    assert seen["rungs"] == ["socket"]
    assert seen["proven_exact"] is (traffic["alarm"] == "")
