# SPDX-License-Identifier: Apache-2.0
"""What a server's thread does, by its name."""

from __future__ import annotations

import re

#: At the end, or after what is no letter. A number inside a name is part of it: `G1 Main Marker`,
#: `C2 CompilerThre`.
_NUMBER = re.compile(r"(?<![A-Za-z0-9])[0-9]+(?![A-Za-z])|[0-9]+$")


def thread_role(comm: str, process_comm: str) -> str:
    """`worker-12` and `worker-7` are `worker-?`.

    A thread that is called as its process is (the main thread, or one that nobody named) keeps
    that name, for numbers in it are of a version: `python3.11`.
    """
    return comm if comm == process_comm else _NUMBER.sub("?", comm)
