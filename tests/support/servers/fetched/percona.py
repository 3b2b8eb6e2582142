# SPDX-License-Identifier: Apache-2.0
"""The real pt-query-digest, of Debian's package percona-toolkit: a single Perl program."""

from __future__ import annotations

from pathlib import Path

from servers.fetched import debian
from servers.fetched.cache import folder, run_tool


def pt_query_digest() -> Path:
    """The program, fetched on first use. Raises Unavailable."""

    def fill(directory: Path) -> None:
        packages = directory / "packages"
        debian.download("trixie", ["percona-toolkit"], packages)
        (package,) = packages.glob("percona-toolkit_*.deb")
        run_tool(["dpkg-deb", "-x", str(package), str(directory)], directory, package.name)
        for file in packages.iterdir():
            file.unlink()

    return folder("percona-toolkit", "trixie", fill) / "usr/bin/pt-query-digest"
