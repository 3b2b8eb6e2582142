# SPDX-License-Identifier: Apache-2.0
"""go-ycsb 1.0.1: the Yahoo! Cloud Serving Benchmark in Go, the load of `make bench-ycsb`."""

from __future__ import annotations

import shutil
from pathlib import Path

from servers.fetched import go
from servers.fetched.cache import folder

MODULE = "github.com/pingcap/go-ycsb"
VERSION = "v1.0.1"
SUM = "h1:OGIUjQjtC22KDHPCqg4+ScWYFZrHQjJnt3Gmf4N8UOw="


def installation() -> Path:
    """The folder with the program `go-ycsb`, built on first use.

    Raises:
        Unavailable: it cannot be fetched or built.
    """
    return folder(f"go-ycsb-{VERSION}", SUM, _fill)


def _fill(directory: Path) -> None:
    source = directory / "source"
    go.unpack_module(go.module(MODULE, VERSION, SUM, directory), source)
    go.build(source, "./cmd/go-ycsb", directory / "go-ycsb", f"go-ycsb {VERSION}")
    shutil.rmtree(source)
