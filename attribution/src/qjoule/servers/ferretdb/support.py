# SPDX-License-Identifier: Apache-2.0
"""FerretDB, which speaks the protocol of MongoDB, for shared code."""

from __future__ import annotations

from qjoule.servers.ferretdb.identify import identify
from qjoule.servers.ferretdb.resolve import resolve
from qjoule.servers.ferretdb.rungs import choose_rung
from qjoule.servers.ferretdb.settings import settings
from qjoule.servers.support import ServerSupport

SUPPORT = ServerSupport(
    name="ferretdb",
    flavours={"ferretdb": "FerretDB"},
    system="mongodb",
    executables="ferretdb",
    identify=identify,
    settings=settings,
    resolve=resolve,
    choose_rung=choose_rung,
)
