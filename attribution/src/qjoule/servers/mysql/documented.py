# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for MySQL and MariaDB."""

from __future__ import annotations

from qjoule.servers.mysql.signatures import SIGNATURES
from qjoule.servers.supported import THREAD_MODES, Functions, Supported

_MARIADB, _MYSQL = ("10.11", "11.8"), ("8.0.15", "9.7")


def _functions(newest: str, tested: tuple[str, ...]) -> tuple[Functions, ...]:
    """The signatures of one of the two; `newest` is the line that the tests run."""
    name = newest.partition(" ")[0]
    said = f"{name} {', '.join(tested)}"
    return tuple(
        Functions(versions, (signature,), said if versions == newest else "no")
        for versions, signature, _role in SIGNATURES
        if versions.rpartition(", ")[2].startswith(name)
    )


ROWS = (
    Supported(
        "mariadb",
        "MariaDB",
        THREAD_MODES,
        _MARIADB,
        _functions("MariaDB from 10.6", _MARIADB),
    ),
    Supported("mysql", "MySQL", THREAD_MODES, _MYSQL, _functions("MySQL from 5.7", _MYSQL)),
)
