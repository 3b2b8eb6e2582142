# SPDX-License-Identifier: Apache-2.0
"""SFTP to servers with known host keys, over a connection that is renewed when lost.

fsspec's implementation accepts any host key, never reconnects (`SFTPFileSystem._connect`), and
hangs if two threads use it: one reads the other's answer from the channel and drops it
(`paramiko.SFTPClient._read_response`).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

#: Known hosts of the machine; the user's are in `~/.ssh/known_hosts` (sshd(8)).
OF_MACHINE = Path("/etc/ssh/ssh_known_hosts")
#: Timeout for connecting, and time between two keepalives.
CONNECT_S, ALIVE_S = 20.0, 30


class _OneAtATime(paramiko.SFTPClient):  # type: ignore[misc]
    """Sends no request before the previous one is answered."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._alone = threading.RLock()
        super().__init__(channel)

    def _request(self, kind: int, *arguments: Any) -> Any:
        with self._alone:
            return super()._request(kind, *arguments)

    def _read_response(self, waitfor: int | None = None) -> Any:
        with self._alone:
            return super()._read_response(waitfor)


class KnownHosts(SFTPFileSystem):  # type: ignore[misc]
    """Raises `paramiko.SSHException` if a server's key is unknown or has changed."""

    def __init__(self, host: str, **settings: Any) -> None:
        if not self._cached:  # fsspec caches instances and calls __init__ again
            self._connecting = threading.Lock()
        super().__init__(host, **settings)

    def _connect(self) -> None:
        client = paramiko.SSHClient()
        client.load_system_host_keys()
        if OF_MACHINE.exists():
            client.load_system_host_keys(str(OF_MACHINE))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            client.connect(self.host, **{"timeout": CONNECT_S, **self.ssh_kwargs})
            transport: Any = client.get_transport()
            transport.set_keepalive(ALIVE_S)
            self._sftp = _OneAtATime.from_transport(transport)
        except BaseException:
            client.close()
            raise
        self.client = client

    @property
    def ftp(self) -> Any:
        with self._connecting:
            transport = self.client.get_transport()
            if transport is None or not transport.is_active():
                self._connect()
            return self._sftp
