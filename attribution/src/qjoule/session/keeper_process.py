# SPDX-License-Identifier: Apache-2.0
"""The keeper's own program: see `session.keeper`.

It imports little until the first request. While nothing has to be followed, which is nearly always,
it holds a fourth of what a copy of the command would.
"""

import os
import socket
import struct

from qjoule.own_rights import drop_capability, hide
from qjoule.root_part.reader_filter import keep_from_starting

PROCESS = struct.Struct("=i")
#: Descriptors: to the root part, to the command, and a file with the pickled `Follow`.
ROOT, COMMAND, FOLLOW = 3, 4, 5


def main() -> None:
    """The whole life of the keeper."""
    try:
        hide()
        drop_capability()
    except OSError:
        os._exit(1)
    keep_from_starting()
    root = socket.socket(fileno=ROOT)
    asking = socket.socket(fileno=COMMAND)
    follow = None
    while len(content := asking.recv(PROCESS.size)) == PROCESS.size:
        import json  # noqa: PLC0415 - see above
        import pickle  # noqa: PLC0415
        from dataclasses import asdict  # noqa: PLC0415

        if follow is None:
            with os.fdopen(FOLLOW, "rb") as file:
                follow = pickle.load(file)  # our own command's, from before it read anything
        for answer in follow(root, *PROCESS.unpack(content)):
            asking.send(json.dumps(asdict(answer)).encode())
    os._exit(0)
