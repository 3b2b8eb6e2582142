# SPDX-License-Identifier: Apache-2.0
"""The process that writes the store: the engine may start no process once it reads untrusted data.

Before that, it starts a shell, which waits and runs this module for each line that it gets.
"""

from __future__ import annotations

import ctypes
import os
import signal
from functools import partial
from pathlib import Path

from qjoule.agent.store_writer import write_waiting
from qjoule.children import become_python, fork_helper, wait_shortly
from qjoule.process import drop_capability, hide
from qjoule.root_part.reader_filter import keep_from_starting

_REQUESTS, _ANSWER = 3, 4  #: descriptors of the shell
_LOOP = f'while read -r _ <&{_REQUESTS}; do "$@"; echo $? >&{_ANSWER}; done'
_PR_SET_PDEATHSIG = 1  #: prctl(2)


class WriterProcess:
    """The engine's side of the writer; call `close` at the end."""

    def __init__(self, store: Path) -> None:
        """Starts the shell; this process may have one thread only. Raises `QjouleError`."""
        code = f"from qjoule.commands.agent_writer import main; main({str(store)!r})"
        requests, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        try:
            life = partial(become_python, code, _LOOP)
            self.pid = fork_helper(life, (requests, answer), runs_a_program=True)
        finally:
            os.close(requests)
            os.close(answer)

    def run(self) -> None:
        """Has all waiting minutes written. Raises `OSError` if the shell has ended."""
        os.write(self._ask, b"\n")
        while (reply := os.read(self._answer, 1)) != b"\n":
            if not reply:
                raise OSError(0, "its writer has ended")

    def close(self) -> None:
        os.close(self._ask)
        os.close(self._answer)
        wait_shortly(self.pid)


def main(store: str) -> None:
    """The entire life of the writer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    hide()
    drop_capability()
    keep_from_starting()
    write_waiting(Path(store))
