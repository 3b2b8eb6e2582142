# SPDX-License-Identifier: Apache-2.0
"""Prometheus as Debian packages it: the server and promtool, unpacked and not installed."""

from __future__ import annotations

from pathlib import Path

from servers.fetched.cache import folder, run_tool
from servers.process import Unavailable

PACKAGE = "prometheus"


def installation() -> Path:
    """The folder with the programs `prometheus` and `promtool`."""
    return folder("prometheus", PACKAGE, _fill)


def _fill(directory: Path) -> None:
    run_tool(["apt-get", "-q", "download", PACKAGE], directory, "Prometheus")
    for package in sorted(directory.glob("*.deb")):
        run_tool(["dpkg-deb", "-x", str(package), "unpacked"], directory, package.name)
        package.unlink()
    for program in ("prometheus", "promtool"):
        found = directory / "unpacked/usr/bin" / program
        if not found.is_file():
            raise Unavailable(f"Debian's package {PACKAGE} has no {program}")
        found.rename(directory / program)
    run_tool(["rm", "-r", "unpacked"], directory, "Prometheus")
