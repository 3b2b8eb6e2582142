# SPDX-License-Identifier: Apache-2.0
"""Adds the minutes that wait in the journal to the store's files, in a process that then ends
(`commands.agent_writer`): Arrow is in memory for a second in five minutes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qjoule.agent import journal


def write_waiting(path: Path) -> None:
    """Adds the minutes that wait to the store at `path`. Raises `OSError`."""
    from qjoule.agent.store import Store  # noqa: PLC0415 (the engine has no Arrow)
    from qjoule.lazy_import import leave_pandas_out  # noqa: PLC0415

    leave_pandas_out()
    store, known, put_aside = None, journal.take_state(path), 0
    for file in journal.waiting(path):
        try:
            entry = journal.read_entry(file)
        except ValueError:
            file.replace(file.with_name(f".{file.name}.damaged"))
            put_aside += 1
            continue
        if store is None:
            store = Store(path, entry.host, entry.kept, known)
        store.retention = entry.kept
        for table, values, now_s in entry.news:
            store.tables[table].tell(values, now_s)
        store.write(entry.minute, entry.main, file.name)
        file.unlink()
    if store is not None:
        outcome = replace(store.outcome, damaged=store.damaged + put_aside)
        journal.leave(path, outcome, store.known)
