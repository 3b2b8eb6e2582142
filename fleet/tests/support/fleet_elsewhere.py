# SPDX-License-Identifier: Apache-2.0
"""Servers of files for tests of shipping: S3 by moto, SFTP by asyncssh, both in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

#: What moto accepts; any would do.
AWS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
}


@contextmanager
def s3_server() -> Iterator[str]:
    """Its URL; it has a bucket `fleet`. The environment has to have `AWS`."""
    server_module: Any = pytest.importorskip("moto.server")
    boto3: Any = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        urlopen(f"{url}/moto-api/reset", b"").close()  # what an earlier server had
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket="fleet")
        yield url
    finally:
        server.stop()


@dataclass
class SftpServer:
    """`root`: what its users see as `/`. Its only user is `qjoule` with the password `secret`."""

    root: Path
    port: int = 0
    key: Any = None
    _loop: Any = field(default_factory=asyncio.new_event_loop)
    _thread: Any = None
    _listener: Any = None
    _connections: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"sftp://qjoule:secret@127.0.0.1:{self.port}/fleet"

    @staticmethod
    def new_key() -> Any:
        asyncssh: Any = pytest.importorskip("asyncssh")
        return asyncssh.generate_private_key("ssh-ed25519")

    def line_of(self, key: Any) -> str:
        """A line of a file of known hosts, if it had this key."""
        words = key.export_public_key().decode().split()
        return f"[127.0.0.1]:{self.port} {' '.join(words[:2])}\n"

    def start(self) -> None:
        asyncssh: Any = pytest.importorskip("asyncssh")
        self.key = self.key or self.new_key()
        connections, root = self._connections, str(self.root).encode()

        class Server(asyncssh.SSHServer):  # type: ignore[misc]
            def connection_made(self, conn: Any) -> None:
                connections.append(conn)

            def begin_auth(self, _username: str) -> bool:
                return True

            def password_auth_supported(self) -> bool:
                return True

            def validate_password(self, username: str, password: str) -> bool:
                return (username, password) == ("qjoule", "secret")

        def files(channel: Any) -> Any:
            return asyncssh.SFTPServer(channel, chroot=root)

        async def listen() -> Any:
            return await asyncssh.create_server(
                Server, "127.0.0.1", self.port, server_host_keys=[self.key], sftp_factory=files
            )

        if self._thread is None:
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        self._listener = self._do(listen())
        self.port = self._listener.get_port()

    def stop(self) -> None:
        """Closes its port and all connections."""

        async def close() -> None:
            self._listener.close()
            for connection in self._connections:
                connection.abort()
            self._connections.clear()
            await self._listener.wait_closed()

        self._do(close())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(20)


@contextmanager
def sftp_server(root: Path) -> Iterator[SftpServer]:
    server = SftpServer(root)
    (root / "fleet").mkdir(parents=True)
    server.start()
    try:
        yield server
    finally:
        server.close()
