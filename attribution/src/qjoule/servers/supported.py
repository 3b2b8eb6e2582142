"""The servers that qjoule knows: their versions in the tests, their modes, their functions.

Made for docs/servers.md. A server is added by one entry of SUPPORTED.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qjoule.contract import Rung
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.rungs import Choice, choose_rung
from qjoule.servers.signatures import (
    MONGODB_SIGNATURES,
    MYSQL_SIGNATURES,
    POSTGRES_FUNCTIONS,
    POSTGRES_MAJORS,
    VOLTDB_FUNCTION,
)
from qjoule.servers.types import Fact, Flavour, Server
from qjoule.servers.voltdb.find import VERSIONS as VOLTDB_VERSIONS


@dataclass(frozen=True)
class Mode:
    """A way to configure a server that decides how it is traced."""

    title: str
    encryption: bool | None = False  #: may sessions be encrypted? None: not known
    thread_pool: bool | None = False  #: of a Redis: io-threads that read
    wanted: Rung | None = None  #: a rung that the user has to ask for

    def choice(self, flavour: Flavour, kernel: KernelFacts, symbol_problem: str) -> Choice:
        """What qjoule does with such a server on such a kernel (see `choose_rung`)."""
        server = Server(
            id=0,
            flavour=flavour,
            version="",
            exe_path=Path("/"),
            exe_name="/",
            exe_id=(0, 0),
            tgids=(),
            ports=(),
            sockets=(),
            encryption=Fact(self.encryption, ""),
            thread_pool=Fact(self.thread_pool, ""),
        )
        if self.wanted is Rung.AGENT:
            return choose_rung(server, kernel, symbol_problem, agent=True)
        return choose_rung(server, kernel, symbol_problem, self.wanted)


@dataclass(frozen=True)
class Functions:
    """What the symbol rung of some versions looks for."""

    versions: str
    names: tuple[str, ...]  #: empty: there is no symbol rung
    tested: str = "no"  #: versions that the tests run with these


@dataclass(frozen=True)
class Supported:
    flavour: Flavour
    name: str
    modes: tuple[Mode, ...]
    tested: tuple[str, ...] = ()  #: run for real by the tests, as discovery reads versions
    functions: tuple[Functions, ...] = ()


_PLAIN = Mode("plain text")
_TLS = Mode("TLS possible", encryption=True)
_UNKNOWN = Mode("configuration unknown", encryption=None, thread_pool=None)
_MYSQL_MODES = (
    _PLAIN,
    _TLS,
    Mode("thread pool", thread_pool=True),
    Mode("thread pool, TLS possible", encryption=True, thread_pool=True),
    _UNKNOWN,
)
_MARIADB_TESTED, _MYSQL_TESTED, _POSTGRES_TESTED = "10.11", "8.0.15", "15"
_REDIS_TESTED, _CASSANDRA_TESTED, _FERRETDB_TESTED = "7.0", "5.0.9", "1.24.2"
_VOLTDB_TESTED = "10.0"
_POSTGRES_VERSIONS = f"PostgreSQL {POSTGRES_MAJORS[0]} to {POSTGRES_MAJORS[-1]}"


def _mysql_functions(newest: str, tested: str) -> tuple[Functions, ...]:
    """MySQL's and MariaDB's signatures; `newest` is the line that the tests run."""
    name = newest.partition(" ")[0]
    return tuple(
        Functions(versions, (signature,), f"{name} {tested}" if versions == newest else "no")
        for versions, signature, _role in MYSQL_SIGNATURES
        if versions.rpartition(", ")[2].startswith(name)
    )


SUPPORTED = (
    Supported(
        Flavour.MARIADB,
        "MariaDB",
        _MYSQL_MODES,
        (_MARIADB_TESTED,),
        _mysql_functions("MariaDB from 10.6", _MARIADB_TESTED),
    ),
    Supported(
        Flavour.MYSQL,
        "MySQL",
        _MYSQL_MODES,
        (_MYSQL_TESTED,),
        _mysql_functions("MySQL from 5.7", _MYSQL_TESTED),
    ),
    Supported(
        Flavour.POSTGRES,
        "PostgreSQL",
        # A process for each connection, always.
        (_PLAIN, _TLS, Mode(_UNKNOWN.title, encryption=None)),
        (_POSTGRES_TESTED,),
        (
            Functions(
                _POSTGRES_VERSIONS,
                tuple(POSTGRES_FUNCTIONS.values()),
                f"PostgreSQL {_POSTGRES_TESTED}",
            ),
        ),
    ),
    Supported(
        Flavour.REDIS,
        "Redis",
        (_PLAIN, _TLS, Mode("io-threads that read", thread_pool=True), _UNKNOWN),
        (_REDIS_TESTED,),
        (Functions("Redis", (), f"Redis {_REDIS_TESTED}"),),
    ),
    Supported(
        Flavour.MONGODB,
        "MongoDB",
        _MYSQL_MODES,
        ("stand-in",),  # tests/servers/mongod_like: it reads, and is called, as a mongod does
        tuple(Functions(versions, (name,)) for versions, name in MONGODB_SIGNATURES),
    ),
    Supported(
        Flavour.FERRETDB,
        "FerretDB",
        (Mode(_PLAIN.title, thread_pool=True), Mode(_TLS.title, encryption=True, thread_pool=True)),
        (_FERRETDB_TESTED,),
        (Functions("FerretDB", (), f"FerretDB {_FERRETDB_TESTED}"),),
    ),
    Supported(
        Flavour.CASSANDRA,
        "Cassandra",
        (_PLAIN, _TLS, _UNKNOWN, Mode("any, with `--agent`", None, None, Rung.AGENT)),
        (_CASSANDRA_TESTED,),
        (Functions("Cassandra", (), f"Cassandra {_CASSANDRA_TESTED}"),),
    ),
    Supported(
        Flavour.VOLTDB,
        "VoltDB",
        (Mode("all", encryption=None),),
        (_VOLTDB_TESTED,),
        (
            Functions(
                f"VoltDB {', '.join(f'{n}x' for n in VOLTDB_VERSIONS)} on Java 11 to 20",
                (VOLTDB_FUNCTION,),
                f"VoltDB {_VOLTDB_TESTED}, Java 17",
            ),
        ),
    ),
    Supported(Flavour.GENERIC, "any other process", (Mode("all"),)),
)
