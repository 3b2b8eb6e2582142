# SPDX-License-Identifier: Apache-2.0
"""A shipper that SIGKILL ends at random moments loses nothing, and ships nothing in part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ship_killed
from closed_hours import closed_contents, contents, make_store
from qjoule.fleet.ship import manifest

#: More of them are in bench/fleet.
KILLS = int(os.environ.get("QJOULE_KILLS", "30"))


def test_random_kills_lose_nothing(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store", hours=10), tmp_path / "to"
    program = [sys.executable, ship_killed.__file__, str(store), str(to), str(KILLS), "1"]
    ended = subprocess.run(program, capture_output=True, text=True, check=True)
    assert int(ended.stdout) > KILLS // 4, "too few were killed in the midst"
    found = contents(to)
    manifests = [path for path in found if path.startswith("manifests")]
    entries = {path for name in manifests for path in manifest.parse(found.pop(name))[0]}
    assert found == closed_contents(store, 10)
    assert entries == found.keys()
    assert not list(to.rglob("*.tmp")), "what was half written is replaced by the next shipper"
