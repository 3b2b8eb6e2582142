# SPDX-License-Identifier: Apache-2.0
"""Servers of other Debian suites, each run by chroot in a root tree of its own.

To the tracer they are what servers in containers are: other libraries, other paths, and names that
mean something else outside.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qjoule.studies.servers.accounts import Account


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
    words = ["chroot", str(tree)]
    if account is not None:  # a change of user clears the death signal that was set outside
        words += ["setpriv", f"--reuid={account.uid}", f"--regid={account.gid}"]
        words += ["--clear-groups", "--pdeathsig=TERM", "--"]
    # The only locale that every C library has built in.
    environment = "export PATH=/usr/sbin:/usr/bin LC_ALL=C"
    return f'#!/bin/sh\n{environment}\nexec {shlex.join([*words, program])} "$@"\n'
