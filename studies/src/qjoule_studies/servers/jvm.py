# SPDX-License-Identifier: Apache-2.0
"""What servers that run in a JVM have in common: Java, its modules, and drivers that wait long."""

from __future__ import annotations

import pwd
import shutil
import socket
from collections.abc import Iterator

from qjoule_studies.servers.process import readable
from qjoule_studies.servers.unavailable import Unavailable

__all__ = ["NO_PERF_FILE", "java", "knock", "modules", "options_of_user", "readable"]

#: Without it a JVM makes a file for jstat in /tmp/hsperfdata_USER, and that directory stays.
NO_PERF_FILE = "-XX:+PerfDisableSharedMem"


def java() -> str:
    """The Java that servers are started with.

    Raises:
        Unavailable: there is none.
    """
    found = shutil.which("java")
    if found is None:
        raise Unavailable("Java is not installed (package openjdk-17-jre-headless)")
    return found


def modules(option: str, packages: str) -> Iterator[str]:
    """Options that give all code packages of the JDK: `--add-opens` or `--add-exports`."""
    for package in packages.split():
        yield from (option, f"{package}=ALL-UNNAMED")


def knock(port: int) -> None:
    """Fails at once if nobody listens; a driver would keep trying.

    Raises:
        OSError: nobody listens there.
    """
    socket.create_connection(("127.0.0.1", port)).close()


def options_of_user(name: str) -> tuple[str, ...]:
    """Those of setpriv for a command that is to run as that user."""
    user = pwd.getpwnam(name)
    return (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
