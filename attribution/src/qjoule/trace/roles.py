# SPDX-License-Identifier: Apache-2.0
"""Derives a server thread's role from its name."""

from __future__ import annotations

import re

#: At the end, or after a character that is not a letter. A number inside a name belongs to it: `G1
#: Main Marker`, `C2 CompilerThre`.
_NUMBER = re.compile(r"(?<![A-Za-z0-9])[0-9]+(?![A-Za-z])|[0-9]+$")


def thread_role(comm: str, process_comm: str) -> str:
    """`worker-12` and `worker-7` both become `worker-?`.

    A thread that has its process's name (the main thread, or an unnamed one) keeps that name, since
    a number in it is a version: `python3.11`.
    """
    return comm if comm == process_comm else _NUMBER.sub("?", comm)
