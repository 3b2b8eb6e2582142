# SPDX-License-Identifier: Apache-2.0
"""Tags of redis-py's connections, which reach the recorder through the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis as driver
import redis.asyncio

from qjoule_drivers import tag
from servers.process import DatabaseServer
from servers.redis import command_stats
from tracing import long_runs
from tracing.at_once import at_once
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CLIENTS = 64 if long_runs.ASKED else 4
PIPELINE = 8
#: For each client; a multiple of PIPELINE.
CALLS = long_runs.statements(800) // CLIENTS // PIPELINE * PIPELINE


def _work(client: Any) -> None:
    for turn in range(CALLS):
        client.get("said:1")
        if turn % PIPELINE == 0:
            with client.pipeline(transaction=False) as pipe:
                for _ in range(PIPELINE):
                    pipe.incr("said:1")
                pipe.execute()
    with client.pipeline(transaction=True) as pipe:
        pipe.incr("order:1")
        pipe.execute()


async def _work_at_once(client: Any) -> None:
    for _ in range(CALLS // PIPELINE):
        await asyncio.gather(*(client.get("said:1") for _ in range(PIPELINE)))
    async with client.pipeline(transaction=False) as pipe:
        for _ in range(PIPELINE):
            pipe.incr("said:1")
        await pipe.execute()


def _client(server: DatabaseServer, number: int) -> None:
    """Every fourth client is asynchronous, every other one uses RESP 3; each has its own pool."""
    options: dict[str, Any] = {"port": server.port, "protocol": 2 + number % 2}

    async def run() -> None:
        async with driver.asyncio.Redis(**options) as client:
            await _work_at_once(client)

    with tag(release=f"1.{number}"):
        if number % 4 == 3:
            asyncio.run(run())
        else:
            with driver.Redis(**options) as client:
                _work(client)


def _executions(run: Run, text: str) -> Counter[str | None]:
    """How often this was executed, by release."""
    counts: Counter[str | None] = Counter()
    queries = run.having(text)
    for tags, n in zip(queries["tags"], queries["executions"], strict=True):
        counts[dict(tags).get("release") if isinstance(tags, list) else None] += int(n)
    return counts


@pytest.mark.usefixtures("elsewhere")
def test_every_query_has_what_redis_py_sends(redis: DatabaseServer, tmp_path: Path) -> None:
    with redis.connect() as referee:
        before = command_stats(referee)
        with recording(tmp_path / "t", "--pid", str(redis.pid), "--client-tags"):
            at_once(partial(_client, redis), range(CLIENTS))
            with redis.connect(client_name="its_own") as client:
                client.get("own:1")
        after = command_stats(referee)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    gets = _executions(run, "GET said:")
    assert gets == {f"1.{number}": CALLS for number in range(CLIENTS)}
    assert gets.total() + 1 == after["get"]["calls"] - before.get("get", {"calls": 0})["calls"]
    increments = {f"1.{n}": PIPELINE if n % 4 == 3 else CALLS for n in range(CLIENTS)}
    assert _executions(run, "INCRBY said:") == increments
    assert set(_executions(run, "INCRBY order:")) == {f"1.{n}" for n in range(CLIENTS) if n % 4 < 3}
    own = run.having("GET own:")
    assert list(own["application"]) == ["its_own"]
    assert own["tags"].isna().all()
