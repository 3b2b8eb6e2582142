# SPDX-License-Identifier: Apache-2.0
"""Stack sampling of `qjoule top` and the agent: room in the rings, and names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from qjoule.live.recent_stacks import LastMinute, StackOptions, WholeMinutes

if TYPE_CHECKING:
    from qjoule.commands.naming_process import NamingProcess
    from qjoule.session.stacks import OpenTables


def ring_mb(stacks_hz: int, window_ms: int) -> int:
    """Returns the ring size for the stacks of all CPUs until the tracer reads them after a
    window."""
    stack_bytes, cpus = 31 << 10, os.cpu_count() or 1
    return min(512, round(stacks_hz * cpus * stack_bytes * 2 * window_ms / 1e3 / (1 << 20)))


class Naming:
    """The process that names stack frames, if stacks are sampled. `pid`: 0 without one."""

    def __init__(self) -> None:
        self._process: NamingProcess | None = None

    def start(self, tables: OpenTables) -> None:
        from qjoule.commands.naming_process import NamingProcess  # noqa: PLC0415 (--stacks alone)

        self._process = NamingProcess(tables)

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def options(
        self,
        no_stacks: tuple[str, ...],
        window: type[LastMinute] | type[WholeMinutes] = LastMinute,
    ) -> StackOptions | None:
        """`no_stacks`: lines on servers without stacks."""
        process = self._process
        if process is None:
            return None
        return StackOptions(process.name, lambda: (*no_stacks, *process.missing), window)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
