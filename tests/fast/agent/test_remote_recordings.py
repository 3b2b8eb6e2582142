# SPDX-License-Identifier: Apache-2.0
"""Who may start, stop and fetch recordings from another desk. The process is confined as it is."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qjoule.commands.record import command
from qjoule.errors import UsageError
from recordings_engine import META, SEGMENTS
from remote_agent import RemoteAgent

POST = "X-Qjoule: 1"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteAgent]:
    directory = tmp_path_factory.mktemp("remote")
    (directory / "recordings").mkdir()
    found = RemoteAgent(directory, recordings=directory / "recordings", requests_per_second=500.0)
    yield found
    found.close()


def listed(agent: RemoteAgent) -> list[dict[str, Any]]:
    code, _, content = agent.get("/recordings", "boss")
    assert code == 200
    found: list[dict[str, Any]] = json.loads(content)["recordings"]
    return found


def ordered(agent: RemoteAgent, what: str, token: str = "boss", header: str = POST) -> int:
    return agent.get(f"/recordings/{what}", token, header, method="POST")[0]


def until(agent: RemoteAgent, state: str) -> dict[str, Any]:
    """The newest recording, once it is so."""
    deadline = time.monotonic() + 20
    while not (found := listed(agent)) or found[-1]["state"] != state:
        assert time.monotonic() < deadline, (found, agent.log())
        time.sleep(0.1)
    return found[-1]


def audited(agent: RemoteAgent, what: str) -> list[dict[str, str]]:
    lines = [json.loads(one) for one in agent.log().splitlines() if one.startswith("{")]
    return [one for one in lines if one["audit"] == what]


def test_one_is_started_stopped_and_fetched_with_a_line_for_each(agent: RemoteAgent) -> None:
    assert ordered(agent, "start?seconds=50") == 202
    assert not until(agent, "recording")["files"]
    assert ordered(agent, "stop") == 202
    found = until(agent, "ended")
    files = {one["name"]: one["bytes"] for one in found["files"]}
    assert files == {"meta.json": len(META), "segments/part-000000.parquet": len(SEGMENTS)}
    assert agent.get(f"/recordings/{found['name']}/0", "boss")[2] == META
    assert agent.get(f"/recordings/{found['name']}/1", "boss")[2] == SEGMENTS
    for what in ("start", "stop", "fetch"):
        (line,) = audited(agent, what)
        assert (line["name"], line["address"]) == ("boss", "127.0.0.1")
    assert audited(agent, "start")[0]["seconds"] == "50"


@pytest.mark.parametrize(
    ("token", "request_line", "header", "code"),
    [
        ("", "GET /recordings", "", 401),
        ("old", "GET /recordings", "", 401),
        ("full", "GET /recordings", "", 403),
        ("full", "POST /recordings/start?seconds=5", POST, 403),
        ("boss", "POST /recordings/start?seconds=5", "", 405),
        ("boss", "GET /recordings/start?seconds=5", POST, 405),
        ("boss", "POST /recordings/start", POST, 400),
        ("boss", "POST /recordings/start?seconds=0", POST, 400),
        ("boss", "POST /recordings/start?seconds=86401", POST, 400),
        ("boss", "POST /recordings/start?seconds=5&x=y", POST, 400),
        ("boss", "POST /recordings/remove", POST, 404),
        ("boss", "GET /recordings/1/0", "", 404),
        ("boss", "GET /recordings/../tokens", "", 404),
        ("boss", "GET /recordings/..%2ftokens/0", "", 404),
        ("boss", "GET /recordings/1/1000", "", 404),
        ("blind", "GET /recordings/1/0", "", 403),
    ],
)
def test_others_are_refused(
    agent: RemoteAgent, token: str, request_line: str, header: str, code: int
) -> None:
    method, path = request_line.split()
    before = len(audited(agent, "start"))
    time.sleep(0.3)  # the rate of orders
    assert agent.get(path, token, *([header] if header else []), method=method)[0] == code
    assert len(audited(agent, "start")) == before


def test_the_command_records_there_and_has_the_same_bytes(
    agent: RemoteAgent, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(agent.tokens["boss"])
    token.chmod(0o600)
    words = ["--host", agent.url, "--token-file", str(token), "--ca", str(agent.ca)]
    time.sleep(1.5)  # the rate of orders
    done = CliRunner().invoke(command, [*words, "-d", "1", "-o", str(tmp_path / "got")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "got" / "meta.json").read_bytes() == META
    assert (tmp_path / "got" / "segments" / "part-000000.parquet").read_bytes() == SEGMENTS
    assert (tmp_path / "got").stat().st_mode & 0o077 == 0
    done = CliRunner().invoke(command, [*words, "--order", "list"])
    assert done.output.split()[-3:-1] == ["ended", "1.0"], done.output
    done = CliRunner().invoke(command, [*words, "--pid", "1"])
    assert isinstance(done.exception, UsageError)
    assert "--pid is not for --host" in str(done.exception)


def test_the_oldest_go_and_their_files_are_closed(agent: RemoteAgent) -> None:
    names = []
    for _ in range(4):
        time.sleep(1.1)  # the rate of orders
        assert ordered(agent, "start?seconds=1") == 202
        until(agent, "recording")
        names.append(until(agent, "ended")["name"])
    assert [one["name"] for one in listed(agent)] == names[-3:]
    assert agent.get(f"/recordings/{names[0]}/0", "boss")[0] == 404
    opened = []
    for one in Path(f"/proc/{agent.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since the directory was read
            opened.append(str(one.readlink()))
    assert sum("/recordings/" in one for one in opened) == 3 * 2, opened
    assert not [one for one in opened if "(deleted)" in one]


def test_a_flood_of_orders_is_bounded(agent: RemoteAgent) -> None:
    codes = [ordered(agent, "stop") for _ in range(12)]
    assert codes.count(429) >= 4 and set(codes) == {202, 429}


def test_without_a_directory_there_are_none(tmp_path: Path) -> None:
    bare = RemoteAgent(tmp_path, tls=False)
    try:
        assert bare.get("/recordings", "boss")[0] == 404
        assert bare.get("/recordings/start?seconds=5", "boss", POST, method="POST")[0] == 404
    finally:
        bare.close()
