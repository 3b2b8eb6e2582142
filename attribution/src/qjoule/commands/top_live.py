# SPDX-License-Identifier: Apache-2.0
"""`qjoule top` live: traces this machine's servers and makes snapshots."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from qjoule.commands.option_groups import ResultOptions
from qjoule.commands.say import say
from qjoule.commands.stack_sampling import Naming, ring_mb
from qjoule.contract import Mode
from qjoule.engine.keys import selection
from qjoule.engine.memory_adapter import OnLearned, discard_evidence
from qjoule.errors import QjouleError
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.machine import active_memory
from qjoule.machine.active_calibration import for_machine
from qjoule.machine.identity import this_machine
from qjoule.machine.throttling import RecentCounts
from qjoule.model.fit.cells import Cell
from qjoule.root_part.client import root_part
from qjoule.servers.decoding import fingerprint
from qjoule.session.options import TracingOptions
from qjoule.session.targets import find_targets
from qjoule.session.tracer import Settings
from qjoule.session.tracing import Applications, tracing
from qjoule.snapshots import SnapshotSource
from qjoule.stream.context import StreamContext

#: The kernel side sums per window, so the tracer's cost per window does not depend on the load.
WINDOW_MS = 100
#: Flushes per interval, which ends with a flush. The shortest that keys choose is half a second.
FLUSHES = 4
#: To learn at each interval would double what `top` takes, and changes little that soon.
_REFRESH_S = 10.0


@contextmanager
def live(
    tracing_options: TracingOptions,
    result_options: ResultOptions,
    energy: str,
    interval_s: float,
    *,
    stacks_hz: int,
    groups: tuple[str, ...],
) -> Iterator[SnapshotSource]:
    """Traces within the block. `stacks_hz`: stacks to sample per second of CPU time.
    `groups`: as in `LiveOptions`.

    Raises:
        QjouleError: no root part, no server, no tracer, or the tracer's own message.
    """
    failures: list[str] = []
    # Before tracing, so that an unreadable file fails at once.
    choose = for_machine(result_options.calibration, result_options.memory)
    root_part().need("tracing")
    targets = find_targets(tracing_options)
    for line in targets.left_out:
        say(line)
    settings = Settings(
        Mode.LIVE,
        window_ms=WINDOW_MS,
        flush_ms=min(Settings.flush_ms, round(interval_s * 1e3 / FLUSHES)),
        energy=energy,
        client_tags=tracing_options.client_tags,
        ring_mb=Settings.ring_mb + ring_mb(stacks_hz, WINDOW_MS),
        pin_map=tracing_options.pin_map,
        stacks_hz=stacks_hz,
    )
    try:
        naming = Naming()
        traced = tracing(targets, settings, applications=Applications.ALL, modules=naming.start)
        with closing(naming), traced as running:
            for line in (*running.no_stacks, running.unheard, running.pinned):
                if line:
                    say(line)
            context = StreamContext(
                fingerprint,
                running.meta,
                tracing_options.client_tags,
                running.tags,
                watch=running.watch,
                ids=targets.ids if tracing_options.ids else None,
            )
            remember = _memory_updater(result_options.memory, failures)
            yield StreamSource(
                running.stream,
                context,
                LiveOptions(
                    result_options.idle,
                    choose,
                    where=selection(result_options.where),
                    groups=groups,
                    on_learned=remember,
                    refresh_s=_REFRESH_S,
                    stacks=naming.options(running.no_stacks),
                    throttling=RecentCounts(),
                ),
                stop=running.tracer.stop,
                failure=running.tracer.last_words,
                name=targets.names,
            )
    finally:
        for line in (*failures[:1], *targets.refusals()):  # after the view has left the screen
            say(line)


def _memory_updater(choice: str | None, failures: list[str]) -> OnLearned:
    """Returns a function that adds the view's evidence to the memory and collects `failures`.

    Our user may have no right to write the caller's memory.
    """
    path = Path(choice) if choice else active_memory.own_file()
    if choice == active_memory.NONE or not (choice or os.access(path.parent, os.W_OK)):
        return discard_evidence
    try:
        machine = this_machine()
    except QjouleError:
        return discard_evidence

    def remember(cells: tuple[Cell, ...]) -> None:
        measured = [cell for cell in cells if cell.conditions.energy.endswith("measured")]
        try:
            active_memory.add(path, measured if choice is None else cells, machine)
        except QjouleError as error:
            failures.append(f"the memory is not extended: {error}")

    return remember
