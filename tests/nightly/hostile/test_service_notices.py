# SPDX-License-Identifier: Apache-2.0
"""What the root part tells a service manager, which listens to its main process alone."""

from __future__ import annotations

import errno
import socket
import struct
from pathlib import Path

import pytest

from qjoule.agent.notify import Notice
from qjoule.root_part.client import RootPart as Client
from qjoule.root_part.protocol import Kind, Refused, ask
from tracing.root_part import root_part

pytestmark = pytest.mark.root
#: Number and text of what is no notice.
REFUSED = [
    (0, b""),
    (5, b""),
    (2**32 - 1, b""),
    (1, b"a\nMAINPID=1"),
    (1, b"\x1b[0m"),
    (4, b"a\rb"),
]


@pytest.mark.parametrize("abstract", [False, True])
def test_notices_are_one_line_of_a_known_kind_from_the_main_process(
    tmp_path: Path, abstract: bool
) -> None:
    address = f"@{tmp_path}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        manager.settimeout(5)
        manager.bind(address.replace("@", "\0", 1))
        with root_part("agent", environment={"NOTIFY_SOCKET": address}) as root:
            for number, text in REFUSED:
                with pytest.raises(Refused) as refused:
                    ask(root.connection, Kind.NOTIFY, number=number, text=text)
                assert refused.value.errno == errno.EINVAL
            for notice in Notice:
                Client(root.connection).notify(notice, "x" * 4095)
                content, beside, _, _ = manager.recvmsg(8192, 256)
                name = "WATCHDOG" if notice is Notice.ALIVE else notice.name
                assert content.decode() == f"{name}=1\nSTATUS=" + "x" * 4095
                (sender,) = [data for _, kind, data in beside if kind == socket.SCM_CREDENTIALS]
                assert struct.unpack("3i", sender)[0] == root.process.pid
