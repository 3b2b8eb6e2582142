# SPDX-License-Identifier: Apache-2.0
"""How a connection's attributes apply to its queries over time."""

from __future__ import annotations

import io
import struct

import numpy as np

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent
from qjoule.servers import registry
from qjoule.stream.blocks import Stream
from qjoule.stream.sessions import Sessions

#: PROTOCOL_41, CONNECT_WITH_DB, SECURE_CONNECTION, PLUGIN_AUTH, CONNECT_ATTRS
FLAGS = 0x200 | 0x8 | 0x8000 | 1 << 19 | 1 << 20


def event(kind: SessionEvent, t_ns: int, text: bytes = b"") -> bytes:
    record = {"session": 7, "t_ns": t_ns, "text_bytes": len(text), "event": kind}
    return ft.block(Block.SESSION, record | {"server_kind": registry.kind_of("mysql")}, text=text)


def _attributes(release: str) -> bytes:
    pairs = [b"_pid", b"7", b"qjoule.release", release.encode()]
    block = b"".join(bytes([len(word)]) + word for word in pairs)
    return bytes([len(block)]) + block


def _login(release: str) -> bytes:
    names = b"alice\0\0shop\0mysql_native_password\0"
    return struct.pack("<IIB23x", FLAGS, 1 << 24, 45) + names + _attributes(release)


def _change(release: str | None) -> bytes:
    more = _attributes(release) if release else b""
    return b"bob\0\0books\0" + b"\x2d\0" + b"mysql_native_password\0" + more


def releases(sessions: Sessions, *times: int) -> list[str | None]:
    many = np.full(len(times), 7, np.uint64)
    at_ns = np.array(times, np.uint64)
    found = sessions.tags_of(many, at_ns, sessions.names_of(many, at_ns)[2])
    if found is None:
        return [None] * len(times)
    codes, sets = found
    return [dict(sets[code]).get("release") if code >= 0 else None for code in codes.tolist()]


def test_attributes_hold_until_another_login() -> None:
    events = [
        event(SessionEvent.OPEN, 10, _login("1")),
        event(SessionEvent.DATABASE, 15, b"books"),
        event(SessionEvent.USER, 20, _change("2")),
        event(SessionEvent.USER, 30, _change("refused")),
        event(SessionEvent.KEPT, 31),
        event(SessionEvent.USER, 40, _change(None)),
        event(SessionEvent.USER, 50, _change("3")),
    ]
    sessions = Sessions()
    for frame in Stream(io.BytesIO(ft.head() + b"".join(events))):
        if frame.kind is Block.SESSION:
            assert sessions.add(frame)
    expected = ["1", "1", "2", "2", "2", None, "3"]
    assert releases(sessions, 11, 16, 21, 29, 35, 45, 55) == expected
    sessions.settle(1 << 40)
    assert releases(sessions, 1 << 41) == ["3"]
