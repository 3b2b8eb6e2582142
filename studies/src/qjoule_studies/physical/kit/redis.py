# SPDX-License-Identifier: Apache-2.0
"""Redis in the kit: one thread serves all connections, so it has one load at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qjoule_studies.physical.kit.loads import KitServer, program, run_statements
from qjoule_studies.physical.machine import pin
from qjoule_studies.servers import start as start_server

PRODUCT = "redis"
ORDER = 2
#: After each command, of every load: it makes the bursts, and is nothing beside the other queries.
#: The server itself wakes up ten times per second only, so its own timeouts are too coarse.
_PAUSE_S = "0.0007"
_LOOP = "local x = 0 for i = 1, {turns} do x = (x * 31 + i) % 65521 end return x"


@contextmanager
def start(directory: Path, table_bytes: int, cpus: set[int]) -> Iterator[KitServer]:  # noqa: ARG001
    """See `loads.Starter`. It makes a directory of its own."""
    with start_server(PRODUCT, {}) as target:
        pin(target.pid, cpus)
        server = KitServer(
            product=PRODUCT,
            pid=target.pid,
            dialect=None,
            statements={
                "computing": (f'EVAL "{_LOOP.format(turns=1_000_000)}" 0',),
                "memory": ("BITCOUNT far",),
                "bursts": (f'EVAL "{_LOOP.format(turns=4_000)}" 0',),
            },
            client=(
                program("redis-cli"),
                *("-h", target.host, "-p", str(target.port), "-i", _PAUSE_S),
            ),
            environment={"REDISCLI_AUTH": target.password},
        )
        # A string of zeros is not backed by memory of its own: every page must be written.
        run_statements(server, f'EVAL "{_FILL.format(parts=table_bytes >> 20)}" 0\n')
        yield server


_FILL = (
    "local one = string.rep('q', 1048576) "
    "for i = 0, {parts} - 1 do redis.call('SETRANGE', 'far', i * 1048576, one) end"
)
