# SPDX-License-Identifier: Apache-2.0
"""Tags that a connection sends to its server when it is opened. Opt-in, for named keys only.

Servers store a client's name or attributes, which adds nothing to each statement:
`application_name` in PostgreSQL, connection attributes in MySQL, a client's name in Redis. The
value dates from when the connection was opened, and a pool lends connections to all kinds of work.
So name keys that hold for a process, such as a release or a job.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from qjoule_drivers.context import in_force

_keys: frozenset[str] = frozenset()


def put_in_connections(keys: Iterable[str]) -> None:
    """From now on new connections send the tags of these keys. No keys: they send none."""
    global _keys  # noqa: PLW0603
    _keys = frozenset(keys)


def of_a_new_connection() -> dict[str, str]:
    """The current tags that a new connection sends."""
    return in_force().those(_keys) if _keys else {}


def name_of_a_new_connection(longest: int) -> str:
    """`key=value,key2=value2`, encoded as in comments: as many pairs as fit into `longest`
    characters.

    Empty without tags.
    """
    name = ""
    for key, value in of_a_new_connection().items():
        pair = f"{quote(key, safe='')}={quote(value, safe='')}"
        longer = f"{name},{pair}" if name else pair
        if len(longer) <= longest:
            name = longer
    return name
