# SPDX-License-Identifier: Apache-2.0
"""What must be there to start a server: a user to run it as, its program, and Java for some.

Servers that the distribution does not package are where `make servers` has put them: they are
fetched and checked by `tests/support/servers/fetched`; here they are only looked up. Nothing here
needs a driver.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.api import QjouleError

CACHE_VARIABLE = "QJOULE_SERVERS_CACHE"
#: Without it a JVM makes a file for jstat in /tmp/hsperfdata_USER, and that directory stays.
NO_PERF_FILE = "-XX:+PerfDisableSharedMem"


class Unavailable(QjouleError):
    """This server cannot be started here; the message says what to install or to fetch."""


@dataclass(frozen=True)
class Account:
    """A user of this host that a server runs as."""

    uid: int
    gid: int

    @property
    def identity(self) -> tuple[str, ...]:
        """Options of setpriv that make a command this user's; none if it is ours."""
        if self.uid == os.geteuid():
            return ()
        return (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups")

    def own(self, path: Path) -> None:
        """Gives a file or directory to this user."""
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid)

    def write(self, path: Path, text: str) -> None:
        """Writes a file that only this user can read."""
        path.touch(0o600)
        path.write_text(text)
        self.own(path)


def own_account() -> Account:
    return Account(os.geteuid(), os.getegid())


def service_account(*names: str) -> Account:
    """The first of these users that exists, or `nobody`, where we are root; else ourselves.

    Clients can make some servers write files or run programs, so no server may run as root.
    """
    if os.geteuid() != 0:
        return own_account()
    for name in (*names, "nobody"):
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return Account(user.pw_uid, user.pw_gid)
    raise Unavailable("there is no user 'nobody' to run a server as: add one")


def cache() -> Path:
    """The directory of fetched servers: $QJOULE_SERVERS_CACHE, else ~/.cache/qjoule/servers."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "qjoule" / "servers")


def fetched(name: str, target: str = "") -> Path:
    """The folder of the newest version that is there of `name`, such as `cassandra`.

    Args:
        target: the target for `make servers`, if it is not fetched by default.

    Raises:
        Unavailable: there is none.
    """
    # A folder is renamed to its name when it is complete; what begins with a dot is not.
    folders = [place for place in cache().glob(f"{name}-*") if place.is_dir()]
    if not folders:
        how = f'make servers SERVERS="{target}"' if target else "make servers"
        raise Unavailable(
            f"{name} is not in {cache()}: fetch it with '{how}', "
            f"or set {CACHE_VARIABLE} to where it is"
        )
    return max(folders, key=lambda place: place.stat().st_mtime)


def find_java() -> str:
    """The Java that servers are started with.

    Raises:
        Unavailable: there is none.
    """
    java = shutil.which("java")
    if java is None:
        raise Unavailable("Java is not installed (package openjdk-17-jre-headless)")
    return java


def jdk_modules(option: str, packages: str) -> Iterator[str]:
    """Options that give all code packages of the JDK: `--add-opens` or `--add-exports`."""
    for package in packages.split():
        yield from (option, f"{package}=ALL-UNNAMED")


def knock(port: int) -> None:
    """Fails at once if nobody listens; a driver would keep trying.

    Raises:
        OSError: nobody listens there.
    """
    socket.create_connection(("127.0.0.1", port)).close()
