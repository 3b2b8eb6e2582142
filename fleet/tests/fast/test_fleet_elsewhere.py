# SPDX-License-Identifier: Apache-2.0
"""Shipping to S3 and SFTP, and questions to them: users' libraries, and servers of others.

The servers of files are moto (S3) and asyncssh (SFTP), both in this process.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from closed_hours import closed_contents, make_store, write_hour
from fleet_dataset import Fleet, Host, write
from qjoule.errors import QjouleError
from qjoule_fleet.commands.fleet import command
from qjoule_fleet.files import RemoteFiles
from qjoule_fleet.ship.destination import RetryPolicy, destination
from qjoule_fleet.ship.shipper import Report, Shipper

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
    """The URL of a server with a bucket `fleet`. The environment has to have `AWS`."""
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
        key_fields = key.export_public_key().decode().split()
        return f"[127.0.0.1]:{self.port} {' '.join(key_fields[:2])}\n"

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

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)


@contextmanager
def sftp_server(root: Path) -> Iterator[SftpServer]:
    server = SftpServer(root)
    (root / "fleet").mkdir(parents=True)
    server.start()
    try:
        yield server
    finally:
        server.close()


QUICK = RetryPolicy(attempts=3, timeout_s=60.0, sleep=lambda _pause_s: None)
#: Settings that could lead elsewhere.
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with s3_server() as url:
        yield url


@pytest.fixture
def sftp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SftpServer]:
    pytest.importorskip("paramiko")
    monkeypatch.setenv("HOME", str(tmp_path))  # known hosts and keys are looked for there
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    with sftp_server(tmp_path / "served") as server:
        (tmp_path / ".ssh/known_hosts").write_text(server.line_of(server.key))
        yield server


def ship(store: Path, url: str, **options: str) -> Report:
    return Shipper(store, destination(url, options), retry_policy=QUICK, most_bytes=1 << 30).ship()


def shipped(url: str) -> dict[str, bytes]:
    """All files at a destination but manifests, as a reader of the dataset finds them."""
    files = RemoteFiles(url)
    contents = {}
    for top in files.directories(""):
        for listed in files.walk(top, []) if top != "manifests" else ():
            with files.open(listed.path) as file:
                contents[listed.path] = file.read()
            assert len(contents[listed.path]) == listed.size and listed.stamp
    return contents


def test_s3_by_pyarrow(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qjoule_fleet.ship.destination.filesystem", without_fsspec)
    scheme, at = s3.split("://")
    url = f"s3://fleet/joules?endpoint_override={at}&scheme={scheme}"
    store = make_store(tmp_path / "store")
    for shipped_now, there in ((7, 0), (0, 7)):
        report = ship(store, url)
        assert (len(report.shipped), report.there, report.failed) == (shipped_now, there, [])
    fs: Any = importlib.import_module("pyarrow.fs")  # not typed
    bucket = fs.S3FileSystem(endpoint_override=at, scheme=scheme)
    contents = {
        file.path.removeprefix("fleet/joules/"): bucket.open_input_stream(file.path).read()
        for file in bucket.get_file_info(fs.FileSelector("fleet/joules", recursive=True))
        if file.is_file and "/manifests/" not in file.path
    }
    assert contents == closed_contents(store)


def without_fsspec(*_arguments: object, **_options: object) -> Any:
    raise ModuleNotFoundError("No module named 'fsspec'", name="fsspec")


def test_sftp_also_after_a_lost_connection(tmp_path: Path, sftp: SftpServer) -> None:
    store = make_store(tmp_path / "store")
    shipper = Shipper(store, destination(sftp.url, {}), retry_policy=QUICK, most_bytes=1 << 30)
    first = shipper.ship()
    assert (len(first.shipped), first.open, first.failed) == (7, 1, [])
    assert shipped(sftp.url) == closed_contents(store)
    assert ship(store, sftp.url).there == 7
    sftp.stop()
    write_hour(store, 3)
    write_hour(store, 0)  # written again: replaced there as a whole
    assert not shipper.ship().succeeded
    sftp.start()
    report = shipper.ship()
    assert report.succeeded and len(report.shipped) == 2
    assert shipped(sftp.url) == closed_contents(store, 4)
    assert not list((sftp.root / "fleet").rglob(".*")), "nothing unfinished"


@pytest.mark.parametrize("known_key", ["", "other"])
def test_hosts_that_are_not_known_get_nothing(
    tmp_path: Path, sftp: SftpServer, known_key: str
) -> None:
    hosts = tmp_path / ".ssh/known_hosts"
    hosts.write_text(sftp.line_of(sftp.new_key()) if known_key else "")
    says = "does not match" if known_key else "not found in known_hosts"
    with pytest.raises(QjouleError, match=says) as error:
        destination(sftp.url, {})
    assert "secret" not in str(error.value)
    assert not list((sftp.root / "fleet").iterdir())


DAY = ("--from", "2026-11-01T00:00Z", "--to", "2026-11-01T03:00Z", "--memory", "200", "--json")


def top(root: str) -> Any:
    done = CliRunner().invoke(command, ["top", root, *DAY])
    assert done.exit_code == 0, (done.exception, done.stderr)
    return {name: part for name, part in json.loads(done.stdout).items() if name != "dataset"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = Fleet([Host("db1"), Host("db2", grade="estimated")], 2, (0, 30))
    return write(tmp_path_factory.mktemp("fleet"), fleet)


def test_questions_to_sftp(root: Path, sftp: SftpServer) -> None:
    shutil.copytree(root, sftp.root / "fleet/joules")
    assert top(f"{sftp.url}/joules") == top(str(root))
