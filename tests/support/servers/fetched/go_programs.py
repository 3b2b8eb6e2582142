# SPDX-License-Identifier: Apache-2.0
"""Programs that are built of published Go modules, because Debian packages none of them."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qjoule_studies.servers.prerequisites import Unavailable
from servers.fetched.cache import folder, run_tool

MINIMUM = (1, 24)
TOOLCHAIN = "v0.0.1-go1.24.13.linux-amd64"
TOOLCHAIN_SUM = "h1:5sgfUhn9QCgVl4UYj32GrIYFHI3bi2UX55tNfupXwxc="


def module(path: str, version: str, h1: str, cwd: Path) -> Path:
    """The zip of a module, in Go's own cache. Raises Unavailable."""
    name = f"{path}@{version}"
    download = json.loads(run_tool([_any_go(), "mod", "download", "-json", name], cwd, name))
    if download["Sum"] != h1:
        raise Unavailable(f"{name} has hash {download['Sum']}, expected {h1}: not used")
    return Path(download["Zip"])


def unpack_module(archive: Path, directory: Path) -> None:
    """Extracts a module's files below `directory`, without the zip's leading `path@version`."""
    with zipfile.ZipFile(archive) as zip_file:
        for member in zip_file.infolist():
            # `path@version/…`: the path contains slashes, and the first part with an `@` ends it.
            parts = PurePosixPath(member.filename).parts
            after = next(i for i, part in enumerate(parts) if "@" in part) + 1
            target = directory.joinpath(*parts[after:])
            target.parent.mkdir(parents=True, exist_ok=True)
            with zip_file.open(member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)


def build(source: Path, package: str, output: Path, task: str) -> None:
    """Builds a command of an unpacked module. Raises Unavailable."""
    environment = {
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly -buildvcs=false -trimpath",
        "CGO_ENABLED": "0",
        "GOWORK": "off",
    }
    run_tool([recent_go(), "build", "-o", str(output), package], source, task, environment)


def recent_go() -> str:
    """A `go` that is new enough: the machine's, or else the toolchain, which is a module too."""
    go = _any_go()
    if go_version(go) >= MINIMUM:
        return go
    if platform.machine() != "x86_64":
        raise Unavailable(f"{go} is too old: install Go {MINIMUM[0]}.{MINIMUM[1]} or later")
    return str(folder(TOOLCHAIN, TOOLCHAIN_SUM, _fill_toolchain) / "bin" / "go")


def go_version(go: str) -> tuple[int, int]:
    """(1, 24) for go1.24.3; (0, 0) if there is no version."""
    output = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _fill_toolchain(directory: Path) -> None:
    unpack_module(module("golang.org/toolchain", TOOLCHAIN, TOOLCHAIN_SUM, directory), directory)
    # A module's zip contains no permissions.
    for program in [*directory.glob("bin/*"), *directory.glob("pkg/tool/*/*")]:
        program.chmod(0o755)


def _any_go() -> str:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("go is not installed: install the package golang-go")
    return go


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
        unpack_module(module(self.path, self.version, self.h1, directory), source)
        if self.writes_version:  # its release process does, so the module's zip lacks it
            (source / "build/version/version.txt").write_text(self.version + "\n")
        build(source, self.package, directory / self.name, f"{self.name} {self.version}")
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
