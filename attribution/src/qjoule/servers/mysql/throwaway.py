# SPDX-License-Identifier: Apache-2.0
"""Starts a private MariaDB: on loopback, in a temporary directory, as an unprivileged user.

For measurements that need a server with a known load. It leaves nothing behind.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError

START_S = 60.0
STOP_S = 20.0
#: Not TMPDIR: the server's user must have access, and a socket's path must be short.
PARENT = "/tmp"
PREFIX = "qjoule-"
_GREETING_S = 1.0  #: a server that accepts greets at once
_PROTOCOL = b"\x0a"  #: of the handshake packet, after its header of four bytes


@dataclass(frozen=True)
class MariaDB:
    """A running server."""

    directory: Path
    pid: int
    port: int
    user: str
    password: str
    database: str


@contextmanager
def temporary_directory(purpose: str) -> Iterator[Path]:
    """A directory that other users may traverse but not read, removed on the way out."""
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=PARENT))
    try:
        directory.chmod(0o711)
        yield directory
    finally:
        try:
            _remove(directory)
        finally:  # a signal in the middle of the clean-up does not stop it
            _remove(directory)


@contextmanager
def throwaway_mariadb(
    directory: Path, user: str, database: str, options: Sequence[str] = ()
) -> Iterator[MariaDB]:
    """Starts a server below `directory`, and ends it on the way out.

    `user` has all rights on the empty `database`; `options` are further ones of mariadbd.

    Raises:
        QjouleError: it is not installed or does not start, with the end of its log.
    """
    home = directory / "mariadb"
    home.mkdir(mode=0o700)
    account = _unprivileged_user()
    os.chown(home, account.pw_uid, account.pw_gid)
    password = secrets.token_hex(16)
    _install(home, account)
    port = _free_port()
    _write_init_file(home, account, f"'{user}'@'127.0.0.1'", password, database)
    process = _start(home, account, port, options)
    try:
        _wait_until_ready(port, process, home)
        yield MariaDB(directory, process.pid, port, user, password, database)
    finally:
        _stop(process)


def _install(home: Path, user: pwd.struct_passwd) -> None:
    options = [f"--datadir={home / 'data'}", "--skip-test-db", "--skip-name-resolve"]
    command = [_executable("mariadb-install-db"), "--no-defaults", *options]
    process = _run(command, home, user, "install.log")
    try:
        failed = process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a script and its children
        process.wait()
    if failed:
        raise QjouleError(f"mariadb-install-db failed: {_last_words(home / 'install.log')}")


def _write_init_file(
    home: Path, owner: pwd.struct_passwd, account: str, password: str, database: str
) -> None:
    file = home / "init.sql"
    file.touch(0o600)
    os.chown(file, owner.pw_uid, owner.pw_gid)
    file.write_text(
        f"CREATE DATABASE {database} CHARACTER SET utf8mb4;\n"
        f"CREATE USER {account} IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON {database}.* TO {account};\n"
    )


def _start(
    home: Path, user: pwd.struct_passwd, port: int, options: Sequence[str]
) -> subprocess.Popen[bytes]:
    command = [
        _executable("mariadbd"),
        "--no-defaults",
        f"--datadir={home / 'data'}",
        f"--init-file={home / 'init.sql'}",
        f"--pid-file={home / 'pid'}",
        f"--socket={home / 'socket'}",
        "--bind-address=127.0.0.1",
        f"--port={port}",
        "--skip-name-resolve",
        *options,
    ]
    return _run(command, home, user, "server.log")


def _run(
    command: list[str], home: Path, user: pwd.struct_passwd, log_name: str
) -> subprocess.Popen[bytes]:
    with (home / log_name).open("wb") as log:
        return subprocess.Popen(
            [*_as(user), *command],
            cwd=home,
            env=_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C reaches only us, so that we can stop the server in order
            start_new_session=True,
        )


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], home: Path) -> None:
    """Waits until the server greets a client, which is after it has run its init file."""
    deadline = time.monotonic() + START_S
    while not _greets(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise QjouleError(f"MariaDB did not start: {_last_words(home / 'server.log')}")
        time.sleep(0.05)


def _greets(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), _GREETING_S) as client:
        return client.recv(5)[4:] == _PROTOCOL
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks the server to end and waits for it; kills it when it does not."""
    try:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:
        process.kill()
        process.wait()


def _remove(directory: Path) -> None:
    """Removes it, repeatedly if needed: a process just killed may still have written to it."""
    deadline = time.monotonic() + STOP_S
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)
        if directory.exists() and time.monotonic() > deadline:
            raise QjouleError(f"{directory} cannot be removed: remove it by hand")
        time.sleep(0.02)


def _as(user: pwd.struct_passwd) -> list[str]:
    """Command prefix: run as `user`, and end when this process does, even by kill -9.

    A change of user clears the death signal (prctl(2)): setpriv sets it afterwards.
    """
    identity = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [_executable("setpriv"), *identity, "--pdeathsig=TERM", "--"]


def _unprivileged_user() -> pwd.struct_passwd:
    for name in ("mysql", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise QjouleError("neither a user 'mysql' nor 'nobody' exists to run MariaDB as: add one")


def _environment(home: Path) -> dict[str, str]:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": str(home), "TMPDIR": str(home), "LC_ALL": "C.UTF-8"}


def _executable(name: str) -> str:
    executable = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin")
    if executable is None:
        raise QjouleError(f"{name} is not installed: install package mariadb-server-core")
    return executable


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " / ".join(lines[-3:]) or "it said nothing"
