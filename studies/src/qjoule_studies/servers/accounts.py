# SPDX-License-Identifier: Apache-2.0
"""Whom a server runs as."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule_studies.servers.unavailable import Unavailable


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
            found = pwd.getpwnam(name)
            return Account(found.pw_uid, found.pw_gid)
    raise Unavailable("there is no user 'nobody' to run a server as: add one")
