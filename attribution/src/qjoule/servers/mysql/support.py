# SPDX-License-Identifier: Apache-2.0
"""MySQL and MariaDB, for shared code."""

from __future__ import annotations

from qjoule.servers.choice import Case, Choice, attach_mode_by_connection
from qjoule.servers.mysql.find import FACTS, SIGNATURES, Role, boundary_cost_ns, identify, resolve
from qjoule.servers.mysql.settings import settings
from qjoule.servers.mysql.vocabulary import vocabulary
from qjoule.servers.support import ServerSupport
from qjoule.servers.supported import THREAD_MODES, Functions, Supported
from qjoule.servers.types import Server

#: MySQL manual, "X Plugin Options and System Variables", "Administrative Connection Management"
_X_PORT, _ADMIN_PORT = 33060, 33062
_X_SOCKET = "mysqlx"  #: how the name of its unix socket begins


def _x_protocol(server: Server) -> str:
    """The sessions that do not speak MySQL's classic protocol; empty: there are none.

    Any further port may be the X Plugin's, which an option can move.
    """
    others = [port for port in server.ports[1:] if port != _ADMIN_PORT]
    ports = [_X_PORT] if _X_PORT in server.ports else others
    named = any(path.rpartition("/")[2].startswith(_X_SOCKET) for path in server.sockets)
    if server.flavour != "mysql" or not (ports or named):
        return ""
    where = f"port {', '.join(map(str, ports))}" if ports else "a unix socket"
    return f"sessions of the X Protocol ({where})"


def _choose_attach_mode(case: Case) -> Choice:
    """The X Plugin hands its statements to the function that the symbol mode probes."""
    return attach_mode_by_connection(case, unseen=_x_protocol(case.server))


SUPPORT = ServerSupport(
    name="mysql",
    flavours={"mariadb": "MariaDB", "mysql": "MySQL"},
    executables="mariadbd|mysqld",
    installed=(
        "usr/sbin/mariadbd",
        "usr/sbin/mysqld",
        "usr/libexec/mariadbd",
        "usr/libexec/mysqld",
    ),
    identify=identify,
    settings=settings,
    resolve=resolve,
    resolved=FACTS,
    choose_attach_mode=_choose_attach_mode,
    replaced_by_reads=(Role.END,),
    boundary_cost_ns=boundary_cost_ns,
    vocabulary=vocabulary,
)


_MARIADB, _MYSQL = ("10.11", "11.8"), ("8.0.15", "9.7")


def _functions(newest: str, tested: tuple[str, ...]) -> tuple[Functions, ...]:
    """The signatures of one of the two; `newest` is the line that the tests run."""
    name = newest.partition(" ")[0]
    in_tests = f"{name} {', '.join(tested)}"
    return tuple(
        Functions(versions, (signature,), in_tests if versions == newest else "no")
        for versions, signature, _role in SIGNATURES
        if versions.rpartition(", ")[2].startswith(name)
    )


#: Of docs/servers.md.
DOCUMENTED = (
    Supported(
        "mariadb",
        "MariaDB",
        THREAD_MODES,
        _MARIADB,
        _functions("MariaDB from 10.6", _MARIADB),
    ),
    Supported("mysql", "MySQL", THREAD_MODES, _MYSQL, _functions("MySQL from 5.7", _MYSQL)),
)
