# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by tests of hostile neighbours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.toy_elf import MYSQL_8, toy_server
from tracing.root_part import RootPart, root_part


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="qjoule-hostile-") as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path


@pytest.fixture
def root() -> Iterator[RootPart]:
    """A root part whose command is the test."""
    with root_part() as running:
        yield running


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An executable with the functions of MySQL's server that are probed."""
    return toy_server(tmp_path_factory.mktemp("toy") / "mysqld", [MYSQL_8], flags=("-O0",))
