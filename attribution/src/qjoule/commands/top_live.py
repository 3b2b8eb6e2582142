# SPDX-License-Identifier: Apache-2.0
"""`qjoule top` on this machine's servers: traces them and makes snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qjoule.commands.say import say
from qjoule.contract import Mode
from qjoule.engine.selection import Selection
from qjoule.live.source import StreamSource
from qjoule.machine.in_force import for_machine
from qjoule.model.coefficients import IdlePolicy
from qjoule.servers.shapes import fingerprint
from qjoule.session.targets import find_targets
from qjoule.session.tracer import Settings
from qjoule.session.tracing import Applications, tracing
from qjoule.session.wanted import Wanted
from qjoule.snapshots import SnapshotSource

#: The kernel side sums per window, so a window costs the tracer the same however busy the servers
#: are.
WINDOW_MS = 100


@contextmanager
def live(
    wanted: Wanted, *, idle: IdlePolicy, energy: str, calibration: str | None, where: Selection
) -> Iterator[SnapshotSource]:
    """Traces while the block runs.

    Raises:
        QjouleError: no root part, no server, no tracer, or the tracer's own message.
    """
    choose = for_machine(calibration)  # a file that cannot be read fails at once
    targets = find_targets(wanted)
    for words in targets.left_out:
        say(words)
    settings = Settings(
        Mode.LIVE, window_ms=WINDOW_MS, energy=energy, client_tags=wanted.client_tags
    )
    with tracing(targets, settings, applications=Applications.ALL) as running:
        if running.unheard:
            say(running.unheard)
        yield StreamSource(
            running.stream,
            fingerprint,
            running.meta,
            idle=idle,
            choose=choose,
            stop=running.tracer.stop,
            failure=running.tracer.last_words,
            name=targets.names,
            reports=running.tags,
            client_tags=wanted.client_tags,
            where=where,
        )
