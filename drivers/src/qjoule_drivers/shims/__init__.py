# SPDX-License-Identifier: Apache-2.0
"""One module per driver. Each names its driver, the versions it was tested with, and installs its
wrappers.
"""

from __future__ import annotations

from qjoule_drivers.shims import cassandra, psycopg, pymongo, pymysql, redis
from qjoule_drivers.shims.shim import Shim

SHIMS: dict[str, Shim] = {
    shim.name: shim
    for shim in (pymysql.SHIM, pymongo.SHIM, cassandra.SHIM, psycopg.SHIM, redis.SHIM)
}
