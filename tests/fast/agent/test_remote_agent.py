# SPDX-License-Identifier: Apache-2.0
"""The process for other desks, confined as it is: who may see what, and hostile clients."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.metrics.http import MAX_REQUEST_BYTES
from qjoule.remote.source import RemoteSource
from qjoule.remote.tls import client_context
from qjoule.remote.wire import decode
from qjoule.snapshots import Controls
from remote_agent import RemoteAgent, certificate, snapshot_bytes


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteAgent]:
    found = RemoteAgent(tmp_path_factory.mktemp("remote"), requests_per_second=500.0)
    yield found
    found.close()


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
    assert all(of not in agent.log() for of in agent.tokens.values())
    with pytest.raises(QjouleError, match=words):
        agent.connection(token).snapshot()


def test_a_certificate_of_another_host_is_refused_in_one_line(tmp_path: Path) -> None:
    certificate(tmp_path, "other", "elsewhere.example")
    other = RemoteAgent(
        tmp_path,
        tls_certificate=str(tmp_path / "other.crt"),
        tls_key=str(tmp_path / "other.key"),
    )
    try:
        context = ssl.create_default_context(cafile=tmp_path / "other.crt")
        with pytest.raises(QjouleError, match="certificate is refused: Hostname mismatch") as error:
            other.connection("full", context).snapshot()
        assert "\n" not in str(error.value)
        with pytest.raises(QjouleError, match="certificate is refused: self-signed certificate"):
            other.connection("full", client_context("", "", "")).snapshot()
    finally:
        other.close()


def test_client_certificates_are_checked(tmp_path: Path) -> None:
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
    finally:
        agent.close()


def test_a_source_has_each_snapshot_once_and_adds_up(agent: RemoteAgent) -> None:
    source = RemoteSource(agent.connection("full"), "there")
    controls = Controls()
    found = source.snapshots(controls)
    first = next(found)
    assert first.total == first.interval
    agent.show(snapshot_bytes())
    second = next(found)
    assert second.total.main.measured_nj == 2 * first.interval.main.measured_nj
    assert second.total.trace.duration_s == 2 * first.interval.trace.duration_s
    assert sum(second.total.main.parts_nj.values()) == second.total.main.measured_nj
    assert second.total.rows[0].calls == 2 * first.interval.rows[0].calls
    controls.reset()
    agent.show(snapshot_bytes())
    third = next(found)
    assert third.total.main.measured_nj == first.interval.main.measured_nj
    source.close()
    assert list(found) == []


def test_the_process_has_no_rights_and_no_files(agent: RemoteAgent) -> None:
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1"
    assert status["Threads"].strip() == "1"
    opened = [str(one.readlink()) for one in Path(f"/proc/{agent.pid}/fd").iterdir()]
    regular = [one for one in opened if one.startswith("/") and one != "/dev/null"]
    assert regular == [str(agent.directory / "log")], "only the log, to write to"
    assert not [one for one in opened if one.startswith("pipe:")]


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"\x00\xff\xfe\r\n\r\n", 400),
        (b"POST /snapshot HTTP/1.1\r\nContent-Length: 9\r\n\r\nx", 400),
        (b"POST /snapshot HTTP/1.1\r\n\r\n", 401),
        (b"PUT /snapshot HTTP/1.1\r\n\r\n", 405),
        (b"GET /../../etc/shadow HTTP/1.1\r\n\r\n", 401),
        (b"GET " + b"a" * MAX_REQUEST_BYTES + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /snapshot HTTP/1.1\r\nAuthorization: Bearer \xff\x00\r\n\r\n", 401),
        (b"GET /snapshot HTTP/1.1\r\nAuthorization: Basic eDp4\r\n\r\n", 401),
    ],
)
def test_rubbish_gets_its_answer(agent: RemoteAgent, request_bytes: bytes, code: int) -> None:
    with agent.connect() as connection:
        connection.sendall(request_bytes)
        assert int(connection.recv(1 << 16).split()[1]) == code
    assert agent.get("/snapshot", "full")[0] == 200


def test_rubbish_instead_of_tls_takes_no_place(agent: RemoteAgent) -> None:
    with ExitStack() as stack:
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", b"\x80" * 9000):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", agent.port), 10))
            plain.sendall(content)
        assert agent.get("/snapshot", "full")[0] == 200


def test_a_header_of_a_gigabyte_is_cut_off(agent: RemoteAgent) -> None:
    sent = 0
    with agent.connect() as connection:
        connection.sendall(b"GET /snapshot HTTP/1.1\r\nX: ")
        try:
            while sent < 1 << 30:
                connection.sendall(b"a" * (1 << 16))
                sent += 1 << 16
        except OSError:
            pass
    assert sent < 64 << 20
    assert agent.get("/snapshot", "full")[0] == 200


def test_those_who_hang_leave_room_for_others(agent: RemoteAgent) -> None:
    """One address has half of the places; here all come from one, so places come back in time."""
    with ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", agent.port), 10))
        deadline = time.monotonic() + 30
        while True:
            try:
                assert agent.get("/snapshot", "full")[0] == 200
                break
            except (OSError, IndexError):
                assert time.monotonic() < deadline
                time.sleep(0.2)


def test_a_flood_of_strangers_does_not_take_the_answers_of_others(tmp_path: Path) -> None:
    agent = RemoteAgent(tmp_path, tls=False, requests_per_second=10.0)
    try:
        codes = [agent.get("/snapshot", "wrong")[0] for _ in range(1000)]
        assert agent.get("/snapshot", "full")[0] == 200
        assert set(codes) == {401, 429}
        lines = agent.log().splitlines()
        assert 0 < len(lines) < 500, "the log is bounded"
        time.sleep(1.5)
        agent.get("/snapshot", "wrong")
        omitted = sum(int(json.loads(one).get("omitted", 0)) for one in agent.log().splitlines())
        assert omitted + len(agent.log().splitlines()) == 1001
    finally:
        agent.close()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tls_key": "/nowhere/key"}, "/nowhere/key: cannot be read: No such file"),
        ({"token_file": "/etc/passwd"}, "/etc/passwd: others may read it: chmod 600"),
        (
            {"client_scopes": "views", "client_ca": "/etc/passwd"},
            "remote.client_scopes: scopes are",
        ),
    ],
)
def test_files_that_cannot_be_used_end_the_start(
    tmp_path: Path, keys: dict[str, str], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        RemoteAgent(tmp_path, tls=True, recordings=None, **keys)
