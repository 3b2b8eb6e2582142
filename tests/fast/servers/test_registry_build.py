# SPDX-License-Identifier: Apache-2.0
"""A mistake in the registry of servers stops the build and names the server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
SERVERS = "attribution/src/qjoule/servers"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The inputs of the registry's headers, in a directory with a space in its name."""
    copy = tmp_path / "a tree"
    (copy / SERVERS).mkdir(parents=True)
    for name in ("Makefile", "agent", "packaging"):
        (copy / name).symlink_to(TREE / name)
    for name in ("", "servers/"):
        part = f"attribution/src/qjoule/{name}__init__.py"
        shutil.copy(TREE / part, copy / part)
    for name in ("registry.toml", "registry.py", "registry_header.py"):
        shutil.copy(TREE / SERVERS / name, copy / SERVERS / name)
    return copy


def make(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "build/bpf/registry.h"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_mistake_stops_the_build_and_is_named(tree: Path) -> None:
    table = tree / SERVERS / "registry.toml"
    table.write_text(table.read_text("utf-8") + "\n[newdb]\nkind = 1\nrungs = ['none']\n", "utf-8")
    done = make(tree)
    assert done.returncode != 0
    assert "registry.toml: newdb: mysql has kind 1\n" in done.stderr
    assert not (tree / "build/bpf/registry.h").exists()


def test_a_new_server_is_in_the_headers(tree: Path) -> None:
    assert make(tree).returncode == 0
    table = tree / SERVERS / "registry.toml"
    table.write_text(
        table.read_text("utf-8")
        + "\n[newdb]\nkind = 31\nrungs = ['none']\nthread = true\nhooks = ['forked']\n",
        "utf-8",
    )
    done = make(tree)
    assert done.returncode == 0, done.stderr
    assert "X(newdb, NEWDB, 31)" in (tree / "build/bpf/registry.h").read_text("utf-8")
    assert '"newdb/thread.h"' in (tree / "build/bpf/server_threads.h").read_text("utf-8")
    assert '"newdb/hooks.bpf.h"' in (tree / "build/bpf/server_hooks.h").read_text("utf-8")
