# SPDX-License-Identifier: Apache-2.0
"""FerretDB 1.24.2: a server in Go that speaks MongoDB's protocol, on SQLite."""

from __future__ import annotations

import shutil
from pathlib import Path

from servers.fetched import go
from servers.fetched.cache import folder

MODULE = "github.com/FerretDB/FerretDB"
VERSION = "v1.24.2"
SUM = "h1:trrUU0LbmusMbyubhPS1IELncvrIwKrsRT2LW1UUWCw="


def installation() -> Path:
    """The folder with the program `ferretdb`, built on first use.

    Raises:
        Unavailable: it cannot be fetched or built.
    """
    return folder(f"ferretdb-{VERSION}", SUM, _fill)


def _fill(directory: Path) -> None:
    source = directory / "source"
    go.unpack_module(go.module(MODULE, VERSION, SUM, directory), source)
    # Its release process writes this file, so the module's zip lacks it.
    (source / "build" / "version" / "version.txt").write_text(VERSION + "\n")
    go.build(source, "./cmd/ferretdb", directory / "ferretdb", f"FerretDB {VERSION}")
    shutil.rmtree(source)
