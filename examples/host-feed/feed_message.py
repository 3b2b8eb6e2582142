# SPDX-License-Identifier: Apache-2.0
"""The feed's datagram: how much energy a VM has drawn since its exporter began.

    qjoule-host-feed/1 SESSION SEQUENCE INTERVAL_MS ENERGY_UJ MAC

All are decimal numbers, except MAC: HMAC-SHA256 (RFC 2104) of everything before it, in hexadecimal,
with a key that host and guest share. SESSION is when the exporter began, in ns since 1970. SEQUENCE
counts its datagrams. The energy is a running sum, so a lost datagram loses no energy.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import astuple, dataclass
from pathlib import Path

MAX_BYTES = 256
INTERVALS_MS = range(10, 10_001)
KEY_BYTES = range(32, 4097)
_FORM = re.compile(
    rb"(qjoule-host-feed/1 ([0-9]{1,19}) ([0-9]{1,19}) ([0-9]{1,5}) ([0-9]{1,19})) ([0-9a-f]{64})"
)
_LARGEST = 2**63 - 1


class Refused(Exception):
    """A datagram that is not used; the text is the reason."""


@dataclass(frozen=True)
class Message:
    session: int  #: ns since 1970
    sequence: int
    interval_ms: int  #: how often the exporter sends
    energy_uj: int  #: since the session began


def encode(message: Message, key: bytes) -> bytes:
    """The datagram of a message."""
    data = " ".join(["qjoule-host-feed/1", *map(str, astuple(message))]).encode()
    return data + b" " + _mac(data, key)


def decode(data: bytes, key: bytes) -> Message:
    """The message of a datagram; raises `Refused`."""
    match = _FORM.fullmatch(data) if len(data) <= MAX_BYTES else None
    if match is None:
        raise Refused("not a datagram of the feed")
    if not hmac.compare_digest(_mac(match[1], key), match[6]):
        raise Refused("signed with another key")
    message = Message(*map(int, match.group(2, 3, 4, 5)))
    if max(astuple(message)) > _LARGEST or message.interval_ms not in INTERVALS_MS:
        raise Refused("a number out of range")
    return message


def read_key(path: Path) -> bytes:
    """The shared key. Raises `ValueError` if its length is wrong or if others may read it."""
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} is open to other users: chmod 600 {path}")
    with path.open("rb") as file:
        key = file.read(KEY_BYTES.stop)
    if len(key) not in KEY_BYTES:
        raise ValueError(f"{path} must have {KEY_BYTES.start} to {KEY_BYTES.stop - 1} bytes")
    return key


def _mac(data: bytes, key: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).hexdigest().encode()
