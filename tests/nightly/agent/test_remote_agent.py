# SPDX-License-Identifier: Apache-2.0
"""The process for other desks, confined as it is: who may see and record, and hostile clients."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qjoule.commands.record import command
from qjoule.errors import QjouleError
from qjoule.remote.tls import client_context
from qjoule.remote.wire import decode
from recordings_engine import META, SEGMENTS
from remote_agent import RemoteAgent, certificate, snapshot_bytes

pytestmark = pytest.mark.beside
POST = "X-Qjoule: 1"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteAgent]:
    directory = tmp_path_factory.mktemp("remote")
    (directory / "recordings").mkdir()
    running = RemoteAgent(directory, recordings=directory / "recordings", requests_per_second=500.0)
    yield running
    running.close()


def test_a_token_shows_what_its_scopes_say(agent: RemoteAgent) -> None:
    code, _, content = agent.get("/snapshot", "full")
    assert code == 200 and content == snapshot_bytes()
    code, _, content = agent.get("/snapshot", "bare")
    assert code == 200 and b"SELECT" not in content
    assert [row.shape for row in decode(content)[0].interval.rows] == [""] * 5
    code, _, content = agent.get("/snapshot", "m")
    assert code == 403 and b"without the scope view" in content
    assert b"secret_column" in agent.get("/metrics", "full")[2]
    code, _, content = agent.get("/metrics", "bare")
    assert code == 200 and b"qjoule_query_info" in content and b"secret_column" not in content


@pytest.mark.parametrize(
    ("token", "why", "words"),
    [
        ("", "no token", "a valid token is needed"),
        ("wrong", "wrong token", "a valid token is needed"),
        ("old", "token expired", "the token has expired"),
    ],
)
def test_others_are_refused_and_named_in_the_log(
    agent: RemoteAgent, token: str, why: str, words: str
) -> None:
    code, head, content = agent.get("/snapshot", token)
    assert code == 401 and content.decode() == f"{words}\n"
    assert "WWW-Authenticate: Bearer" in head
    lines = [json.loads(line) for line in agent.until_logged(why).splitlines()]
    line = next(one for one in lines if one["why"] == why)
    assert (line["audit"], line["address"], line["path"]) == ("refused", "127.0.0.1", "/snapshot")
    assert line.get("name") == ("old" if token == "old" else None)
    assert all(secret not in agent.log() for secret in agent.tokens.values())


def test_certificates_of_both_sides_are_checked(tmp_path: Path) -> None:
    certificate(tmp_path, "signer", "signer")
    ours = certificate(tmp_path, "desk", "desk", ca="signer")
    stranger = certificate(tmp_path, "stranger", "stranger")
    agent = RemoteAgent(tmp_path, client_ca=str(tmp_path / "signer.crt"))
    try:
        good = client_context(str(agent.ca), str(ours), str(tmp_path / "desk.key"))
        content = agent.connection("", good).snapshot()
        assert content is not None and b"SELECT" not in content, "the default is view"
        # A token counts more than a certificate.
        with pytest.raises(QjouleError, match="a valid token is needed"):
            agent.connection("wrong", good).snapshot()
        bad = client_context(str(agent.ca), str(stranger), str(tmp_path / "stranger.key"))
        with pytest.raises((QjouleError, ConnectionError)):
            agent.connection("full", bad).snapshot()
        assert agent.connection("full").snapshot() is not None, "a token alone is enough"
        unknown = ssl.create_default_context()
        with pytest.raises(QjouleError, match="certificate is refused: self-signed certificate"):
            agent.connection("full", unknown).snapshot()
    finally:
        agent.close()


def test_the_process_has_no_rights_and_no_files(tmp_path: Path) -> None:
    agent = RemoteAgent(tmp_path)
    try:
        status = Path(f"/proc/{agent.pid}/status").read_text()
        for line in ("Seccomp:\t2", "NoNewPrivs:\t1", "Threads:\t1"):
            assert line in status
        opened = [str(one.readlink()) for one in Path(f"/proc/{agent.pid}/fd").iterdir()]
        regular = [one for one in opened if one.startswith("/") and one != "/dev/null"]
        assert regular == [str(agent.directory / "log")], "only the log, to write to"
        assert not [one for one in opened if one.startswith("pipe:")]
    finally:
        agent.close()


def listed(agent: RemoteAgent) -> list[dict[str, Any]]:
    code, _, content = agent.get("/recordings", "boss")
    assert code == 200
    recordings: list[dict[str, Any]] = json.loads(content)["recordings"]
    return recordings


def until(agent: RemoteAgent, state: str) -> dict[str, Any]:
    """The newest recording, once it is so."""
    deadline = time.monotonic() + 20
    while not (recordings := listed(agent)) or recordings[-1]["state"] != state:
        assert time.monotonic() < deadline, (recordings, agent.log())
        time.sleep(0.1)
    return recordings[-1]


def order(agent: RemoteAgent, what: str) -> int:
    """Its code, once the rate of orders allows another one."""
    deadline = time.monotonic() + 20
    while (code := agent.get(f"/recordings/{what}", "boss", POST, method="POST")[0]) == 429:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return code


def audited(agent: RemoteAgent, what: str) -> list[dict[str, str]]:
    lines = [json.loads(one) for one in agent.log().splitlines() if one.startswith("{")]
    return [one for one in lines if one["audit"] == what]


def test_a_recording_is_started_stopped_and_fetched_with_a_line_for_each(
    agent: RemoteAgent,
) -> None:
    assert order(agent, "start?seconds=50") == 202
    assert not until(agent, "recording")["files"]
    assert order(agent, "stop") == 202
    ended = until(agent, "ended")
    files = {one["name"]: one["bytes"] for one in ended["files"]}
    assert files == {"meta.json": len(META), "segments/part-000000.parquet": len(SEGMENTS)}
    assert agent.get(f"/recordings/{ended['name']}/0", "boss")[2] == META
    assert agent.get(f"/recordings/{ended['name']}/1", "boss")[2] == SEGMENTS
    for what in ("start", "stop", "fetch"):
        line = audited(agent, what)[-1]
        assert (line["name"], line["address"]) == ("boss", "127.0.0.1")
    assert audited(agent, "start")[-1]["seconds"] == "50"


@pytest.mark.parametrize(
    ("token", "request_line", "header", "code"),
    [
        ("old", "GET /recordings", "", 401),
        ("full", "GET /recordings", "", 403),
        ("full", "POST /recordings/start?seconds=5", POST, 403),
        ("boss", "POST /recordings/start?seconds=5", "", 405),
        ("boss", "GET /recordings/start?seconds=5", POST, 405),
        ("boss", "POST /recordings/start?seconds=86401", POST, 400),
        ("boss", "POST /recordings/remove", POST, 404),
        ("boss", "GET /recordings/..%2ftokens/0", "", 404),
        ("boss", "GET /recordings/1/1000", "", 404),
        ("blind", "GET /recordings/1/0", "", 403),
    ],
)
def test_orders_of_others_and_wrong_ones_are_refused(
    agent: RemoteAgent, token: str, request_line: str, header: str, code: int
) -> None:
    method, path = request_line.split()
    before = len(audited(agent, "start"))
    assert agent.get(path, token, *([header] if header else []), method=method)[0] == code
    assert len(audited(agent, "start")) == before


def test_the_command_records_there_and_a_flood_of_orders_is_bounded(
    agent: RemoteAgent, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(agent.tokens["boss"])
    token.chmod(0o600)
    words = ["--host", agent.url, "--token-file", str(token), "--ca", str(agent.ca)]
    got = tmp_path / "got"
    done = CliRunner().invoke(command, [*words, "-d", "1", "-o", str(got)])
    assert done.exit_code == 0, done.output
    assert (got / "meta.json").read_bytes() == META
    assert (got / "segments" / "part-000000.parquet").read_bytes() == SEGMENTS
    assert got.stat().st_mode & 0o077 == 0
    codes = [agent.get("/recordings/stop", "boss", POST, method="POST")[0] for _ in range(12)]
    assert codes.count(429) >= 4 and set(codes) == {202, 429}
