# SPDX-License-Identifier: Apache-2.0
"""The store's writer: a process that adds waiting minutes to the store's files, and then ends.

The engine may start no process once it reads from strangers. Before, it starts a shell that waits,
and runs this program for each line that the engine sends. Arrow is in memory for a second in five
minutes.
"""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

from qjoule.agent import journal
from qjoule.children import become_waiting_shell, fork_helper, wait_shortly
from qjoule.process import drop_capability, hide
from qjoule.root_part.reader_filter import keep_from_starting

_ASKED, _ANSWER = 3, 4  #: descriptors of the shell
_LOOP = f'while read -r _ <&{_ASKED}; do "$@"; echo $? >&{_ANSWER}; done'
_PR_SET_PDEATHSIG = 1  #: prctl(2)


class WriterProcess:
    """The engine's end; `close` it."""

    def __init__(self, store: Path) -> None:
        """Starts the shell, while this process has one thread. Raises `QjouleError`: it cannot."""
        code = f"from qjoule.agent.store_writer import main; main({str(store)!r})"
        asked, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        try:
            life = partial(become_waiting_shell, _LOOP, code)
            self.pid = fork_helper(life, (asked, answer), runs_a_program=True)
        finally:
            os.close(asked)
            os.close(answer)

    def run(self) -> None:
        """Has all waiting minutes written. Raises `OSError`: the shell has ended."""
        os.write(self._ask, b"\n")
        while (found := os.read(self._answer, 1)) != b"\n":
            if not found:
                raise OSError(0, "its writer has ended")

    def close(self) -> None:
        os.close(self._ask)
        os.close(self._answer)
        wait_shortly(self.pid)


def main(store: str) -> None:
    """The whole life of the writer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    hide()
    drop_capability()
    keep_from_starting()
    write_waiting(Path(store))


def write_waiting(path: Path) -> None:
    """Adds the minutes that wait to the store at `path`. Raises `OSError`."""
    from qjoule.agent.store import Store  # noqa: PLC0415 (the engine has no Arrow)
    from qjoule.lazy_import import leave_pandas_out  # noqa: PLC0415

    leave_pandas_out()
    store, known, put_aside = None, journal.take_known(path), 0
    for file in journal.waiting(path):
        try:
            entry = journal.read_entry(file)
        except ValueError:
            file.replace(file.with_name(f".{file.name}.damaged"))
            put_aside += 1
            continue
        if store is None:
            store = Store(path, entry.host, entry.kept, known)
        store.kept = entry.kept
        for table, values, now_s in entry.news:
            store.tables[table].tell(values, now_s)
        store.write(entry.minute, entry.main, file.name)
        file.unlink()
    if store is not None:
        outcome = replace(store.outcome, damaged=store.damaged + put_aside)
        journal.leave(path, outcome, store.known)
