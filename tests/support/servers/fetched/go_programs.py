# SPDX-License-Identifier: Apache-2.0
"""Programs that are built of published Go modules, because Debian packages none of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from servers.fetched import go
from servers.fetched.cache import folder

_OURS = Path(__file__).parents[3] / "nightly/packages"


@dataclass
class GoModule:
    """A module whose commands are built on first use.

    `ours`: a command of this tree that is built with the module's libraries.
    """

    name: str
    path: str
    version: str
    h1: str
    package: str = ""  #: of the command `name`
    ours: Path | None = None
    writes_version: bool = False

    def installation(self) -> Path:
        """The folder with the programs.

        Raises:
            Unavailable: they cannot be fetched or built.
        """
        identity = self.h1 + (self.ours.read_text() if self.ours else "")
        return folder(f"{self.name}-{self.version}", identity, self._fill)

    def _fill(self, directory: Path) -> None:
        source = directory / "source"
        go.unpack_module(go.module(self.path, self.version, self.h1, directory), source)
        if self.writes_version:  # its release process does, so the module's zip lacks it
            (source / "build/version/version.txt").write_text(self.version + "\n")
        if self.package:
            task = f"{self.name} {self.version}"
            go.build(source, self.package, directory / self.name, task)
        if self.ours:
            command = source / "cmd/ours"
            command.mkdir(parents=True)
            shutil.copy(self.ours, command / "main.go")
            name = self.ours.stem.replace("_", "-")
            go.build(source, "./cmd/ours", directory / name, f"{name} of {self.name}")
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
#: Renders and lints the chart. Beside it, a strict reader of Kubernetes objects: strict-manifests.
helm = GoModule(
    "helm",
    "helm.sh/helm/v3",
    "v3.16.4",
    "h1:rBn/h9MACw+QlhxQTjpl8Ifx+VTWaYsw3rguGBYBzr0=",
    "./cmd/helm",
    ours=_OURS / "strict_manifests.go",
)
#: Grafana's own schema (its Foundation SDK), for a strict reader of dashboards: strict-dashboards.
grafana_schema = GoModule(
    "grafana-schema",
    "github.com/grafana/grafana-foundation-sdk/go",
    "v0.0.22",
    "h1:bE+NJ+nE/ouwQaXtPQTz98yIzevuXlyZ4L5pdPLyiC4=",
    ours=_OURS / "strict_dashboards.go",
)
