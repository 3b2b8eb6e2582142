# SPDX-License-Identifier: Apache-2.0
"""Runs a command with the rights that a systemd unit leaves it, without systemd.

usage: as_service.py UNIT FILTER COMMAND...

It takes the unit's capabilities, and the system calls from FILTER, the image's filter, which is
made from the unit.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import sys
from pathlib import Path

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def confine(calls: set[str]) -> None:
    """Other system calls fail with EPERM, as with SystemCallErrorNumber=EPERM."""
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
    unit, command = Path(sys.argv[1]).read_text(), sys.argv[3:]
    bounding = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    assert bounding is not None
    rights = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in bounding[1].split())
    (allowed,) = json.loads(Path(sys.argv[2]).read_text())["syscalls"]
    confine(set(allowed["names"]))
    options = ["--no-new-privs", "--inh-caps", "-all", "--bounding-set", f"-all,{rights}"]
    os.execvp("setpriv", ["setpriv", *options, "--", *command])


if __name__ == "__main__":
    main()
