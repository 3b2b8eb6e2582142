# SPDX-License-Identifier: Apache-2.0
"""The servers that Debian's newer suites have, started in their root trees.

`RELEASES` names them all; the tests of versions run each one (`make test-versions`). `JAVAS`
are the long-term releases of OpenJDK, one of which only an older suite has.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from qjoule_studies.servers import mysql, postgres
from qjoule_studies.servers.prerequisites import Account, find_java, service_account
from qjoule_studies.servers.process import DatabaseServer, server_directory
from qjoule_studies.servers.redis import redis_in
from servers.fetched import debian


class InnerAccount(Account):
    """Whom a server runs as that changes its user by itself, after chroot."""

    @property
    def identity(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class Entered:
    """A root tree, with a script outside of it for each program to be run inside."""

    programs: Path  #: the directory of these scripts
    below: Path  #: where a server makes its directory, by a path that is the same inside


def enter(tree: Path, programs: Mapping[str, str], account: Account | None = None) -> Entered:
    """Makes a tree ready to run programs from."""
    back = tree.joinpath(*tree.parts[1:])
    back.parent.mkdir(parents=True, exist_ok=True)
    if not back.is_symlink():
        back.symlink_to("/".join([".."] * (len(back.parts) - len(tree.parts) - 1)))
    scripts = tree / "entered" / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        script = scripts / name
        script.write_text(_script(tree, program, account))
        script.chmod(0o755)
    return Entered(scripts, tree / "tmp")


def _script(tree: Path, program: str, account: Account | None) -> str:
    command = ["chroot", str(tree)]
    if account is not None:  # a change of user clears the death signal that was set outside
        command += ["setpriv", f"--reuid={account.uid}", f"--regid={account.gid}"]
        command += ["--clear-groups", "--pdeathsig=TERM", "--"]
    # The only locale that every C library has built in.
    environment = "export PATH=/usr/sbin:/usr/bin LC_ALL=C"
    return f'#!/bin/sh\n{environment}\nexec {shlex.join([*command, program])} "$@"\n'


#: What the scripts that make MariaDB's and PostgreSQL's first data call.
_SHELL = ("mariadb-client-core", "dash", "coreutils", "sed", "grep", "hostname")


@dataclass(frozen=True)
class Release:
    """One server of one suite."""

    server: str
    suite: str
    packages: tuple[str, ...]
    start: Callable[..., AbstractContextManager[DatabaseServer]]

    @property
    def name(self) -> str:
        return f"{self.suite}-{self.packages[0]}"

    def tree(self) -> Path:
        """The root tree of the release, fetched on first use. Raises Unavailable."""
        return debian.root_tree(self.suite, self.packages)

    @property
    def version(self) -> str:
        return debian.version(self.tree(), self.packages[0])

    def running(self, *options: str) -> AbstractContextManager[DatabaseServer]:
        """The server with these options. Raises Unavailable."""
        return self.start(self.tree(), *options)


@contextmanager
def _key_value(tree: Path, *options: str, product: str) -> Iterator[DatabaseServer]:
    entered = enter(tree, {f"{product}-server": f"/usr/bin/{product}-server"})
    with server_directory(entered.below) as directory:
        program = entered.programs / f"{product}-server"
        with redis_in(directory, program, *options, name=product) as started:
            yield started


def _inner_account(name: str) -> InnerAccount:
    service = service_account(name)
    return InnerAccount(service.uid, service.gid)


def _redis(tree: Path, *options: str) -> AbstractContextManager[DatabaseServer]:
    return _key_value(tree, *options, product="redis")


def _valkey(tree: Path, *options: str) -> AbstractContextManager[DatabaseServer]:
    return _key_value(tree, *options, product="valkey")


def _postgres(tree: Path, *options: str) -> AbstractContextManager[DatabaseServer]:
    account = _inner_account("postgres")
    (binaries,) = tree.glob("usr/lib/postgresql/*/bin")
    inside = Path("/") / binaries.relative_to(tree)
    programs = {name: str(inside / name) for name in ("initdb", "postgres")}
    entered = enter(tree, programs, account)
    return postgres.postgres_server(
        *options, account=account, programs=entered.programs, below=entered.below
    )


def _mariadb(tree: Path, *options: str) -> AbstractContextManager[DatabaseServer]:
    programs = {
        "mariadbd": "/usr/sbin/mariadbd",
        "mariadb-install-db": "/usr/bin/mariadb-install-db",
    }
    entered = enter(tree, programs)
    return mysql.mariadb_server(*options, programs=entered.programs, below=entered.below)


def _mysql(tree: Path, *options: str) -> AbstractContextManager[DatabaseServer]:
    account = _inner_account("mysql")
    entered = enter(tree, {"mysqld": "/usr/sbin/mysqld"}, account)
    base = entered.programs.parent
    options = ("--basedir=/usr", *options)
    return mysql.mysql_server(base, *options, account=account, below=entered.below)


RELEASES = (
    Release("mariadb", "trixie", ("mariadb-server-core", *_SHELL), _mariadb),
    Release("mariadb", "sid", ("mariadb-server-core", *_SHELL), _mariadb),
    Release("mysql", "sid", ("mysql-server-core", "util-linux"), _mysql),
    Release("postgres", "trixie", ("postgresql-17", "dash", "util-linux"), _postgres),
    Release("postgres", "sid", ("postgresql-18", "dash", "util-linux"), _postgres),
    Release("redis", "trixie", ("redis-server",), _redis),
    Release("redis", "sid", ("redis-server",), _redis),
    Release("valkey", "trixie", ("valkey-server",), _valkey),
    Release("valkey", "sid", ("valkey-server",), _valkey),
)


@dataclass(frozen=True)
class Java:
    """One release of OpenJDK. `suite`: empty for the machine's own."""

    suite: str
    version: int

    @property
    def name(self) -> str:
        return f"java-{self.version}"

    def command(self, uid: int) -> tuple[Path, list[str]]:
        """The root tree, and the command that runs its `java` as this user. Raises Unavailable."""
        if not self.suite:
            tree, java = Path("/"), find_java()
            libraries = ""
        else:
            tree = debian.root_tree(self.suite, (f"openjdk-{self.version}-jre-headless",))
            enter(tree, {})
            home = f"/usr/lib/jvm/java-{self.version}-openjdk-amd64"
            java = f"{home}/bin/java"
            libraries = f"{home}/lib:{home}/lib/jli"  # found by /proc, which a tree lacks
        variable = f"LD_LIBRARY_PATH={libraries}"
        return tree, ["env", variable, "chroot", f"--userspec={uid}:{uid}", str(tree), java]


OWN_JAVA = Java("", 17)
JAVAS = (Java("bullseye", 11), Java("trixie", 21), Java("trixie", 25))
