# SPDX-License-Identifier: Apache-2.0
"""The program of the reattach helper (`session.reattach_helper`).

It imports little until the first request. While it follows nothing, which is nearly always, it
takes a fourth of the memory of a copy of the command.
"""

import os
import struct

from qjoule.process import drop_capability, hide
from qjoule.root_part.reader_filter import keep_from_starting

PROCESS = struct.Struct("=i")
#: Descriptors: the root part, the command, and a file with the pickled `Follow`.
ROOT, COMMAND, FOLLOW = 3, 4, 5


def main() -> None:
    """Runs the reattach helper until the command ends."""
    try:
        hide()
        drop_capability()
    except OSError:
        os._exit(1)
    keep_from_starting()

    def receive() -> int | None:
        """Returns the next process; None if the command has ended."""
        content = os.read(COMMAND, PROCESS.size)
        return PROCESS.unpack(content)[0] if len(content) == PROCESS.size else None

    if (first := receive()) is not None:
        import pickle  # noqa: PLC0415 - see above
        import socket  # noqa: PLC0415
        from functools import partial  # noqa: PLC0415

        from qjoule.root_part.access import owner_of_process  # noqa: PLC0415
        from qjoule.session.turns import serve  # noqa: PLC0415

        with os.fdopen(FOLLOW, "rb") as file:
            follow = pickle.load(file)  # written by our command before it read any input
        root, asking = socket.socket(fileno=ROOT), socket.socket(fileno=COMMAND)
        serve(asking, first, receive, partial(follow, root), owner_of_process)
    os._exit(0)
