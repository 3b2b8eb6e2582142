# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/servers.md for FerretDB."""

from __future__ import annotations

from qjoule.servers.supported import PLAIN, TLS, Functions, Mode, Supported

_TESTED = "1.24.2"

ROWS = (
    Supported(
        "ferretdb",
        "FerretDB",
        (
            Mode(PLAIN.title, thread_pool=True),
            Mode(TLS.title, encryption=True, thread_pool=True),
        ),
        (_TESTED,),
        (Functions("FerretDB", (), f"FerretDB {_TESTED}"),),
    ),
)
