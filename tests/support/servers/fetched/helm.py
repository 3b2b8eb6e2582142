# SPDX-License-Identifier: Apache-2.0
"""Helm 3.16.4, which renders and lints the chart, and beside it a strict reader of Kubernetes
objects, made of the libraries that Helm brings. Debian packages neither.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from servers.fetched import go
from servers.fetched.cache import folder

MODULE = "helm.sh/helm/v3"
VERSION = "v3.16.4"
SUM = "h1:rBn/h9MACw+QlhxQTjpl8Ifx+VTWaYsw3rguGBYBzr0="
STRICT = Path(__file__).parents[3] / "nightly/packages/strict_manifests.go"


def installation() -> Path:
    """The folder with the programs `helm` and `strict-manifests`, built on first use.

    Raises:
        Unavailable: they cannot be fetched or built.
    """
    return folder(f"helm-{VERSION}", SUM + STRICT.read_text(), _fill)


def _fill(directory: Path) -> None:
    source = directory / "source"
    go.unpack_module(go.module(MODULE, VERSION, SUM, directory), source)
    go.build(source, "./cmd/helm", directory / "helm", f"Helm {VERSION}")
    (source / "cmd/strict").mkdir()
    shutil.copy(STRICT, source / "cmd/strict/main.go")
    program = directory / "strict-manifests"
    go.build(source, "./cmd/strict", program, "the strict reader of Kubernetes objects")
    shutil.rmtree(source)
