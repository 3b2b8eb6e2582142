# SPDX-License-Identifier: Apache-2.0
"""What the root part tells a service manager, which listens to its main process alone."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule.agent.notify import Notice
from qjoule.root_part.client import RootPart as Client
from qjoule.root_part.protocol import Kind, Refused, ask
from tracing.root_part import RootPart, root_part

pytestmark = pytest.mark.root
_CREDENTIALS = struct.Struct("3i")


@contextmanager
def manager(address: str) -> Iterator[tuple[RootPart, Callable[[], tuple[str, int]]]]:
    """A root part, and what comes from it next: the datagram and its sender's pid."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        listening.settimeout(5)
        listening.bind(address.replace("@", "\0", 1))

        def came() -> tuple[str, int]:
            content, beside, _, _ = listening.recvmsg(8192, 256)
            sender = next(data for _, kind, data in beside if kind == socket.SCM_CREDENTIALS)
            return content.decode(), _CREDENTIALS.unpack(sender)[0]

        with root_part("agent", environment={"NOTIFY_SOCKET": address}) as root:
            yield root, came


@pytest.mark.parametrize("abstract", [False, True])
def test_every_notice_comes_from_the_main_process(tmp_path: Path, abstract: bool) -> None:
    address = f"@{tmp_path}" if abstract else str(tmp_path / "notify")
    with manager(address) as (root, came):
        for notice in Notice:
            Client(root.connection).notify(notice, "12.3 W (measured)")
            name = "WATCHDOG" if notice is Notice.ALIVE else notice.name
            assert came() == (f"{name}=1\nSTATUS=12.3 W (measured)", root.process.pid)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, b""), (5, b""), (2**32 - 1, b""), (1, b"a\nMAINPID=1"), (1, b"\x1b[0m"), (4, b"a\rb")],
)
def test_a_notice_is_one_line_of_a_known_kind(tmp_path: Path, number: int, text: bytes) -> None:
    with manager(str(tmp_path / "notify")) as (root, came):
        with pytest.raises(Refused) as refused:
            ask(root.connection, Kind.NOTIFY, number=number, text=text)
        assert refused.value.errno == errno.EINVAL
        Client(root.connection).notify(Notice.READY, "x" * 4095)
        assert came()[0] == "READY=1\nSTATUS=" + "x" * 4095


@pytest.mark.parametrize("address", [{}, {"NOTIFY_SOCKET": "/nonexistent"}])
def test_without_a_manager_a_notice_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: dict[str, str]
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with root_part("agent", environment=address) as root, pytest.raises(Refused):
        Client(root.connection).notify(Notice.READY, "")
