# SPDX-License-Identifier: Apache-2.0
"""The name of a Redis connection."""

from __future__ import annotations


def connection_name(name: bytes) -> str | None:
    """The name that a client sets for its connection, "": none. None: the server refuses it.

    Redis refuses blanks and anything but printable ASCII (clientSetNameOrReply(), networking.c).
    """
    return name.decode("ascii") if all(0x21 <= byte <= 0x7E for byte in name) else None
