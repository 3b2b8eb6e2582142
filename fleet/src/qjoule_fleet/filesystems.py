# SPDX-License-Identifier: Apache-2.0
"""Filesystems by URL, as fsspec knows them. SFTP only talks to servers whose keys are known."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def filesystem(
    url: str, options: Mapping[str, str] | None = None, *, anew: bool = False
) -> tuple[Any, str]:
    """The filesystem and the path on it. `options`: as fsspec names them. `anew`: with connections
    of its own.

    Raises `ImportError` without fsspec or the filesystem's library, and whatever that raises.
    """
    core: Any = importlib.import_module("fsspec.core")
    registry: Any = importlib.import_module("fsspec.registry")
    for scheme in ("sftp", "ssh"):
        registry.register_implementation(
            scheme,
            "qjoule_fleet.sftp.KnownHosts",
            clobber=True,
            errtxt="sftp:// needs paramiko: pip install 'qjoule-fleet[sftp]'",
        )
    found, path = core.url_to_fs(url, skip_instance_cache=anew, **(options or {}))
    return found, str(path)
