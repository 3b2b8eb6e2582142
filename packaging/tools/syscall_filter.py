# SPDX-License-Identifier: Apache-2.0
"""Writes the image's filter of system calls: what the unit of systemd allows.

usage: syscall_filter.py UNIT >FILE

The file is of the runtime specification's form (config-linux.md, "Seccomp"), which Podman, Docker,
CRI-O and containerd read. The members of systemd's sets are what `systemd-analyze syscall-filter`
prints.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

EPERM = 1


def allowed_calls(unit: str) -> set[str]:
    """Names of the system calls that the lines SystemCallFilter= of a unit allow."""
    allowed = _members("@default")  # systemd always allows these
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        members = set[str]().union(*(_members(name) for name in line.lstrip("~").split()))
        allowed = allowed - members if line.startswith("~") else allowed | members
    return allowed


def profile(unit: str) -> dict[str, object]:
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [{"names": sorted(allowed_calls(unit)), "action": "SCMP_ACT_ALLOW"}],
    }


def _members(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    command = ["systemd-analyze", "syscall-filter", name]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line.strip() for line in output.splitlines()[1:])
    return set[str]().union(
        *(_members(line) for line in lines if line and not line.startswith("#"))
    )


if __name__ == "__main__":
    json.dump(profile(Path(sys.argv[1]).read_text()), sys.stdout, indent="\t")
    print()
