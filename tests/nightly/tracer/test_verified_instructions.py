# SPDX-License-Identifier: Apache-2.0
"""How many instructions the kernel's verifier looks at before it lets a program run.

It refuses a program above a million (BPF_COMPLEXITY_LIMIT_INSNS, include/linux/bpf.h). How many
they are depends on the kernel: one program had 235,000 on Linux 6.18 and over a million on 7.2. So
all programs keep far below.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing.recording import Recorder

pytestmark = [pytest.mark.root, pytest.mark.server]
MOST = 150_000


def verified(pid: int) -> dict[str, int]:
    """Instructions by program, of those that a process holds (proc(5), fdinfo; Linux 5.16)."""
    found: dict[str, int] = {}
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        fields = dict(line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
        if "verified_insns" in fields:
            found[fields["prog_id"].strip()] = int(fields["verified_insns"])
    return found


@pytest.mark.parametrize(
    ("server", "rung"),
    [(its, rung) for its in ("mariadb", "postgres") for rung in ("socket", "symbol")]
    + [("redis", "socket")],
)
def test_far_below_the_limit(
    server: str, rung: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    its: DatabaseServer = request.getfixturevalue(server)
    recorder = Recorder(tmp_path / "t", "--pid", str(its.pid), "--rung", rung, "--energy", "none")
    try:
        recorder.attached()
        found = verified(recorder.process.pid)
    finally:
        recorder.end()
    assert len(found) > 5, "the root part holds the programs"
    print(max(found.values()))  # for whoever changes a program
    assert max(found.values()) < MOST, found
