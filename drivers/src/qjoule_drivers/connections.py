# SPDX-License-Identifier: Apache-2.0
"""Tags that a connection tells its server when it is opened: opt-in, and only the keys that were
named.

Servers keep something of a client beside its statements, which costs no statement anything:
PostgreSQL `application_name`, MySQL connection attributes, Redis a client's name. It says what was
true when the connection was opened, and a pool lends connections to all kinds of work: name keys
that hold for a process, such as a release or a job.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from qjoule_drivers.context import in_force

_keys: frozenset[str] = frozenset()


def put_in_connections(keys: Iterable[str]) -> None:
    """From now on connections that are opened tell the tags of these keys; none: they do not."""
    global _keys  # noqa: PLW0603
    _keys = frozenset(keys)


def of_a_new_connection() -> dict[str, str]:
    """The current tags that a connection tells."""
    return in_force().those(_keys) if _keys else {}


def name_of_a_new_connection(longest: int) -> str:
    """`key=value,key2=value2`, encoded as in comments; as many as fit into so many characters.

    Empty without tags.
    """
    name = ""
    for key, value in of_a_new_connection().items():
        pair = f"{quote(key, safe='')}={quote(value, safe='')}"
        longer = f"{name},{pair}" if name else pair
        if len(longer) <= longest:
            name = longer
    return name
