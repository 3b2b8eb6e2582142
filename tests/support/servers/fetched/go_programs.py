# SPDX-License-Identifier: Apache-2.0
"""Programs that are built of published Go modules, because Debian packages none of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from servers.fetched import go
from servers.fetched.cache import folder


@dataclass
class GoModule:
    """A module whose command is built on first use."""

    name: str
    path: str
    version: str
    h1: str
    package: str  #: of the command `name`
    writes_version: bool = False

    def installation(self) -> Path:
        """The folder with the programs. Raises Unavailable."""
        return folder(f"{self.name}-{self.version}", self.h1, self._fill)

    def _fill(self, directory: Path) -> None:
        source = directory / "source"
        go.unpack_module(go.module(self.path, self.version, self.h1, directory), source)
        if self.writes_version:  # its release process does, so the module's zip lacks it
            (source / "build/version/version.txt").write_text(self.version + "\n")
        go.build(source, self.package, directory / self.name, f"{self.name} {self.version}")
        shutil.rmtree(source)


#: Speaks MongoDB's protocol, on SQLite.
ferretdb = GoModule(
    "ferretdb",
    "github.com/FerretDB/FerretDB",
    "v1.24.2",
    "h1:trrUU0LbmusMbyubhPS1IELncvrIwKrsRT2LW1UUWCw=",
    "./cmd/ferretdb",
    writes_version=True,
)
#: The Yahoo! Cloud Serving Benchmark in Go, the load of `make bench-ycsb`.
goycsb = GoModule(
    "go-ycsb",
    "github.com/pingcap/go-ycsb",
    "v1.0.1",
    "h1:OGIUjQjtC22KDHPCqg4+ScWYFZrHQjJnt3Gmf4N8UOw=",
    "./cmd/go-ycsb",
)
#: Renders and lints the chart.
helm = GoModule(
    "helm",
    "helm.sh/helm/v3",
    "v3.16.4",
    "h1:rBn/h9MACw+QlhxQTjpl8Ifx+VTWaYsw3rguGBYBzr0=",
    "./cmd/helm",
)
