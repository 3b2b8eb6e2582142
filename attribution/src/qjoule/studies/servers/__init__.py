"""Servers of a study's own: started in a temporary directory, on loopback, and surely ended.

    with start("postgres", {"work_mem": "64MB"}) as target:
        ...

MariaDB, MySQL, PostgreSQL and Redis ask for a password that is made up for each start. Cassandra,
FerretDB, mongod and VoltDB ask for none. None of them runs as root.
"""

from __future__ import annotations

import importlib
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Target, Value

_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Starter:
    """A server that can be started.

    Attributes:
        function: in `starters`, which starts it.
        ours: settings that the start itself decides on; a study cannot.
    """

    function: str
    ours: frozenset[str] = frozenset()


_MYSQL = """
basedir bind-address datadir defaults-file init-file pid-file port skip-grant-tables
skip-networking socket tmpdir user
"""
_POSTGRES = """
config-file data-directory external-pid-file hba-file ident-file listen-addresses port
unix-socket-directories
"""
_REDIS = """
aclfile bind daemonize dir include pidfile port protected-mode requirepass supervised unixsocket
user
"""
_MONGODB = """
bind-ip config dbpath debug-addr fork handler listen-addr logpath pidfilepath port sqlite-url
state-dir unixsocketprefix
"""
_CASSANDRA = """
cdc-raw-directory commitlog-directory data-file-directories hints-directory listen-address
native-transport-port partitioner rpc-address saved-caches-directory seed-provider
ssl-storage-port storage-port
"""
#: By the name of the server.
STARTED: Mapping[str, Starter] = {
    name: Starter(name, frozenset(ours.split()))
    for name, ours in {
        "mariadb": _MYSQL,
        "mysql": _MYSQL,
        "postgres": _POSTGRES,
        "redis": _REDIS,
        "mongodb": _MONGODB,
        "cassandra": _CASSANDRA,
        "voltdb": "",
    }.items()
}


@contextmanager
def start(name: str, settings: Mapping[str, Value]) -> Iterator[Target]:
    """A server with these settings, ended and removed on the way out.

    Start it from a thread that stays: it ends when that thread does, even by kill -9.

    Args:
        name: one of `STARTED`.
        settings: the server's own, by the names that its manual has: variables of MariaDB and
            MySQL, parameters of PostgreSQL, directives of Redis, options of mongod or FerretDB,
            keys of cassandra.yaml. VoltDB has none here.

    Raises:
        UsageError: no such server, or a setting that cannot be given.
        QjouleError: it is not here (says what to install or to fetch), or does not start.
    """
    if name not in STARTED:
        raise UsageError(f"no server {name!r:.50} can be started: choose {', '.join(STARTED)}")
    for setting, value in settings.items():
        _check(name, setting, value)
    try:
        starters = importlib.import_module("qjoule.studies.servers.starters")
    except ModuleNotFoundError as error:
        raise QjouleError(
            f"starting {name} needs {error.name}: pip install 'qjoule[bench]'"
        ) from error
    with _in_order_when_asked(), getattr(starters, STARTED[name].function)(settings) as target:
        yield target


@contextmanager
def _in_order_when_asked() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the program, where they would end it with its servers half removed.

    Signals that somebody handles or ignores already stay theirs.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in ours:  # a second one does not disturb the clearing up
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    ours = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if main and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _check(name: str, setting: str, value: Value) -> None:
    if not isinstance(setting, str) or not _SETTING.fullmatch(setting):
        raise UsageError(f"{name}: {setting!r:.50} is no name of a setting")
    if setting.lower().replace("_", "-") in STARTED[name].ours:
        raise UsageError(f"{name}: {setting} is chosen by qjoule, which starts the server")
    if not isinstance(value, (str, int, float)):
        raise UsageError(f"{name}: {setting} has to be a text, a number, true or false")
    if isinstance(value, str) and not value.isprintable():
        raise UsageError(f"{name}: {setting} has characters that cannot be printed")
