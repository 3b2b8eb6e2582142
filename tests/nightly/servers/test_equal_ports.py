# SPDX-License-Identifier: Apache-2.0
"""Servers with one port in several network namespaces, as on every host of containers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis as client_library

from qjoule.studies.servers.process import free_port
from qjoule.studies.servers.redis import installed_redis
from tracing.recording import Recorder, attribute

pytestmark = [pytest.mark.root, pytest.mark.server]

COMMANDS = (500, 700)


@contextmanager
def in_namespace(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A Redis in a network namespace of its own, which clients reach by its unix socket."""
    directory.mkdir()
    words = ["--port", str(port), "--dir", str(directory), "--save", ""]
    words += ["--unixsocket", str(directory / "s")]
    command = ["unshare", "--net", str(installed_redis()), *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not (directory / "s").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        process.wait()


def test_equal_ports_are_different_servers(tmp_path: Path) -> None:
    port, trace = free_port(), tmp_path / "trace"
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(in_namespace(tmp_path / name, port)) for name in ("a", "b")
        )
        pids = ("--pid", str(one.pid), "--pid", str(other.pid))
        recorder = Recorder(trace, "--energy", "none", *pids)
        try:
            recorder.attached()
            for name, count in zip(("a", "b"), COMMANDS, strict=True):
                with client_library.Redis(unix_socket_path=str(tmp_path / name / "s")) as client:
                    for number in range(count):
                        client.set(f"key:{number}", number)
            assert recorder.stop() == 0, recorder.words
        finally:
            recorder.end()
    rows = attribute(trace, "--by", "server,fingerprint")["rows"]
    calls = {row["server"]: row["calls"] for row in rows if row["shape"] == "SET key:?"}
    assert sorted(calls.values()) == list(COMMANDS)
    assert all(name.startswith(f"redis:{port}@") for name in calls)
