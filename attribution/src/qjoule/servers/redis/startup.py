# SPDX-License-Identifier: Apache-2.0
"""What a Redis connection is called."""

from __future__ import annotations


def connection_name(name: bytes) -> str | None:
    """The name that a client gives its connection, "": none. None: the server refuses it.

    Redis refuses blanks and what is not printable ASCII (clientSetNameOrReply(), networking.c).
    """
    return name.decode("ascii") if all(0x21 <= byte <= 0x7E for byte in name) else None
