# SPDX-License-Identifier: Apache-2.0
"""Asserts that a process can do nothing that its user could not."""

from __future__ import annotations

from pathlib import Path


def holds_nothing(pid: int) -> None:
    """Asserts for every thread: users, groups, capabilities, no way back to them, a filter."""
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    assert threads
    for thread in threads:
        lines = (thread / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        assert "0" not in status["Uid"].split(), "real, effective, saved, file system"
        assert "0" not in status["Gid"].split()
        assert not status["Groups"].split()
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, (thread, kind)
        assert status["NoNewPrivs"].strip() == "1", thread
        assert status["Seccomp"].strip() == "2", thread
