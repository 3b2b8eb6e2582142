# SPDX-License-Identifier: Apache-2.0
"""Runs a command with the rights that a systemd unit leaves it, without systemd.

usage: as_service.py UNIT COMMAND...

It takes the unit's capabilities and filter of system calls. The members of systemd's sets are what
`systemd-analyze syscall-filter` prints.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def allowed_calls(unit: str) -> set[str]:
    """Names of the system calls that the lines SystemCallFilter= allow."""
    found = _members("@default")  # systemd always allows these
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        named = set[str]().union(*(_members(name) for name in line.lstrip("~").split()))
        found = found - named if line.startswith("~") else found | named
    return found


def _members(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    words = ["systemd-analyze", "syscall-filter", name]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    lines = (line.strip() for line in shown.splitlines()[1:])
    return set[str]().union(*(_members(one) for one in lines if one and not one.startswith("#")))


def confine(calls: set[str]) -> None:
    """All others fail with EPERM, as with SystemCallErrorNumber=EPERM."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_ERRNO | errno.EPERM))
    for name in calls:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            library.seccomp_rule_add(context, _ALLOW, number, 0)
    if library.seccomp_load(context):
        sys.exit("as_service: the filter cannot be loaded")


def main() -> None:
    unit, command = Path(sys.argv[1]).read_text(), sys.argv[2:]
    bounding = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    assert bounding is not None
    rights = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in bounding[1].split())
    confine(allowed_calls(unit))
    options = ["--no-new-privs", "--inh-caps", "-all", "--bounding-set", f"-all,{rights}"]
    os.execvp("setpriv", ["setpriv", *options, "--", *command])


if __name__ == "__main__":
    main()
