# SPDX-License-Identifier: Apache-2.0
"""A strict reader of dashboards, made of Grafana's own schema (its Foundation SDK 0.0.22)."""

from __future__ import annotations

import shutil
from pathlib import Path

from servers.fetched import go
from servers.fetched.cache import folder

MODULE = "github.com/grafana/grafana-foundation-sdk/go"
VERSION = "v0.0.22"
SUM = "h1:bE+NJ+nE/ouwQaXtPQTz98yIzevuXlyZ4L5pdPLyiC4="
STRICT = Path(__file__).parents[3] / "nightly/packages/strict_dashboards.go"


def installation() -> Path:
    """The folder with the program `strict-dashboards`, built on first use.

    Raises:
        Unavailable: it cannot be fetched or built.
    """
    return folder(f"grafana-schema-{VERSION}", SUM + STRICT.read_text(), _fill)


def _fill(directory: Path) -> None:
    source = directory / "source"
    go.unpack_module(go.module(MODULE, VERSION, SUM, directory), source)
    (source / "strict").mkdir()
    shutil.copy(STRICT, source / "strict/main.go")
    program = directory / "strict-dashboards"
    go.build(source, "./strict", program, f"the reader of Grafana's schema {VERSION}")
    shutil.rmtree(source)
