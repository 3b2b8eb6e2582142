# SPDX-License-Identifier: Apache-2.0
"""Root trees of Debian 12 with Python and nothing that builds, to install packages in."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from servers.fetched import debian

#: What a machine has on which pip can install: Python with venv, and a shell.
PACKAGES = (
    *("python3.11", "python3.11-venv", "libstdc++6", "dash", "coreutils", "findutils"),
    *("sed", "grep", "libc-bin", "dpkg", "tar", "gzip", "diffutils", "bash"),
)
#: None of these may be there.
BUILDERS = ("cc", "gcc", "clang", "bpftool", "make", "ld", "javac")
TIMEOUT_S = 600


class CleanRoot:
    """A copy of such a tree, entered by chroot with the machine's /proc and /sys."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def script(self, words: Sequence[str]) -> list[str]:
        """The command line that runs a command inside. Mounts end with it."""
        tree = shlex.quote(str(self.tree))
        inner = (
            f"mount --rbind /proc {tree}/proc && mount --rbind /sys {tree}/sys && exec env -i "
            f"PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root "
            f"chroot {tree} {shlex.join(words)}"
        )
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", inner]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.script(words), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    def ran(self, *words: str) -> str:
        """Runs a command that has to succeed; returns what it printed."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


@contextmanager
def clean_root(
    directory: Path, packages: Sequence[str] = PACKAGES, name: str = "root"
) -> Iterator[CleanRoot]:
    """A tree of these packages, `directory/name`, removed at the end. Raises Unavailable."""
    tree = directory / name
    shutil.copytree(debian.root_tree("bookworm", packages), tree, symlinks=True, ignore=_devices)
    for place in ("proc", "sys", "root", "run", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (tree / place).mkdir(parents=True, exist_ok=True)
    for file in ("status", "available"):
        (tree / "var/lib/dpkg" / file).touch()
    subprocess.run(["cp", "-a", "/dev/null", "/dev/zero", "/dev/urandom", tree / "dev"], check=True)
    root = CleanRoot(tree)
    for tool in BUILDERS:
        assert not any((tree / place / tool).exists() for place in ("usr/bin", "usr/sbin"))
    try:
        yield root
    finally:
        shutil.rmtree(tree)


def _devices(directory: str, names: list[str]) -> set[str]:
    return set(names) - {"shm"} if Path(directory).name == "dev" else set()
