# SPDX-License-Identifier: Apache-2.0
"""The agent's process for other desks, as it is, without a tracer; certificates of a test."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

from fake_attribution import typical
from qjoule.remote.access import new_token
from qjoule.remote.client import Connection, address_of
from qjoule.remote.wire import encode
from qjoule.snapshots import Snapshot
from qjoule.studies.servers.process import free_port
from waiting import until

GROUPS = ("server,fingerprint",)
#: Runs in a process of its own: the listener ends with it.
_LIFE = """
import sys, time, pathlib
from qjoule.agent.config import load
from qjoule.commands.agent_listeners import start_listeners
from qjoule.errors import QjouleError
from qjoule.metrics.families import Family, Sample
try:
    where = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    found = start_listeners(load(pathlib.Path(sys.argv[1])), where)
except QjouleError as error:
    sys.exit(str(error))
labels = (("server", "a"), ("text", "select secret_column"))
family = Family("qjoule_query", "info", "A test.", samples=[Sample(labels, "1")])
if where is not None:
    import recordings_engine
    recordings_engine.run_beside(where, found)
print(found.processes["remote"], flush=True)
for line in sys.stdin:
    content = pathlib.Path(line.strip()).read_bytes()
    found.remote.show(content, time.monotonic(), 60.0)
    found.board.show([family], time.monotonic(), 60.0)
    print("shown", flush=True)
"""


def certificate(directory: Path, name: str, host: str, *, ca: str = "") -> Path:
    """A certificate with its key in one file; its own signer, or `ca`'s."""
    key, out = directory / f"{name}.key", directory / f"{name}.crt"
    words = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    words += ["-keyout", str(key), "-out", str(out), "-days", "2", "-subj", f"/CN={name}"]
    words += ["-x509", "-addext", f"subjectAltName=DNS:{host}"]
    if ca:
        words += ["-CA", str(directory / f"{ca}.crt"), "-CAkey", str(directory / f"{ca}.key")]
        words += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(words, check=True, capture_output=True)
    key.chmod(0o600)
    return out


def snapshot_bytes(**other: Any) -> bytes:
    attribution = typical(**other)
    return encode(Snapshot(attribution, attribution, 12.5), "mariadb:3306", GROUPS)


class RemoteAgent:
    """Listens with TLS for `localhost`, unless `tls` is false. Tokens by their names."""

    def __init__(
        self, directory: Path, *, tls: bool = True, recordings: Path | None = None, **keys: object
    ) -> None:
        self.directory = directory
        self.port = free_port()
        lines = []
        self.tokens = {}
        for name, scopes in (
            ("full", "view,texts,metrics"),
            ("bare", "view,metrics"),
            ("m", "metrics"),
            ("boss", "control,texts"),
            ("blind", "control"),
        ):
            self.tokens[name], line = new_token(name, scopes, None)
            lines.append(line)
        self.tokens["old"], line = new_token("old", "view", None)
        lines.append(line.replace(" - ", " 2020-01-01 "))
        tokens = directory / "tokens"
        tokens.write_text("# who may\n\n" + "\n".join(lines) + "\n")
        tokens.chmod(0o600)
        values = {"listen": f"127.0.0.1:{self.port}", "token_file": str(tokens)}
        if tls:
            self.ca = certificate(directory, "agent", "localhost")
            values |= {"tls_certificate": str(self.ca), "tls_key": str(directory / "agent.key")}
        self.scheme = "https" if tls else "http"
        text = "".join(f"{name} = {value!r}\n" for name, value in (values | keys).items())
        self.config = directory / "agent.toml"
        self.config.write_text(f"[metrics]\nenabled = false\n[remote]\n{text}")
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _LIFE, str(self.config)),
                    *([] if recordings is None else [str(recordings)]),
                ],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        pid = self.process.stdout.readline()
        assert pid, self.log()
        self.pid = int(pid)
        self.show(snapshot_bytes())

    def show(self, content: bytes) -> None:
        path = self.directory / "shown"
        path.write_bytes(content)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "shown\n"

    def log(self) -> str:
        return (self.directory / "log").read_text()

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}"

    def connection(self, token: str, context: ssl.SSLContext | None = None) -> Connection:
        """With one of its tokens by name, or another."""
        if context is None and self.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca)
        return Connection(address_of(self.url), self.tokens.get(token, token), context)

    def connect(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), 10)
        if self.scheme == "http":
            return plain
        context = ssl.create_default_context(cafile=self.ca)
        return context.wrap_socket(plain, server_hostname="localhost")

    def get(
        self, path: str, token: str = "", *headers: str, method: str = "GET"
    ) -> tuple[int, str, bytes]:
        """Code, head and content of one answer."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
        if token:
            lines.append(f"Authorization: Bearer {self.tokens.get(token, token)}")
        with self.connect() as connection, connection.makefile("rb") as answer:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            head, _, content = answer.read().partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode("latin-1"), content

    def until_logged(self, words: str) -> str:
        until(lambda: words in self.log(), words)
        return self.log()

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()
