# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for VoltDB."""

from __future__ import annotations

from qjoule.servers.supported import Functions, Mode, Supported
from qjoule.servers.voltdb.find import VERSIONS
from qjoule.servers.voltdb.resolve import FUNCTION

_TESTED = "10.0"

ROWS = (
    Supported(
        "voltdb",
        "VoltDB",
        (Mode("all", encryption=None),),
        (_TESTED,),
        (
            Functions(
                f"VoltDB {', '.join(f'{n}x' for n in VERSIONS)} on Java 11 to 20",
                (FUNCTION,),
                f"VoltDB {_TESTED}, Java 17",
            ),
        ),
    ),
)
