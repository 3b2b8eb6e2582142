# SPDX-License-Identifier: Apache-2.0
"""Gives up root for good, for commands that read or write what a stranger may have made."""

import os


def become(uid: int, gid: int) -> None:
    """From here on this process is that user, without other groups (setresuid(2))."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
