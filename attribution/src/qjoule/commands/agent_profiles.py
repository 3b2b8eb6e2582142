# SPDX-License-Identifier: Apache-2.0
"""The agent's profile of each minute: joules and CPU time of its statements by sampled stack, as a
pprof message for the listening process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from qjoule.engine.stacks import CUT, OTHER, RecentStacks
from qjoule.export.pprof import pprof_message
from qjoule.export.profile import Profile, samples_of, types_of
from qjoule.live.recent_stacks import MINUTE_S, MOST_ROWS
from qjoule.live.sampled_stacks import MOST, MOST_OF_ROW
from qjoule.metrics.shared import SnapshotBoard
from qjoule.model.result import Attribution
from qjoule.reporters import format as fmt
from qjoule.reporters.provenance import graded
from qjoule.snapshots import Snapshot
from qjoule.trace.meta import Server

#: After so long without a new profile the agent counts as unhealthy, as with metrics.
STALE_S = 3 * MINUTE_S


class MinuteProfiles:
    """Publishes the profile of each minute that ends. `say`: logs a line."""

    def __init__(self, board: SnapshotBoard, hertz: int, say: Callable[[str], object]) -> None:
        self._board, self._hertz, self._say = board, hertz, say

    def take(self, snapshot: Snapshot, servers: Sequence[Server], unix_s: float) -> None:
        """Publishes a snapshot's stacks. `unix_s`: when its interval ended."""
        if snapshot.stacks is None:
            return
        kinds = {server.name or server.kind: server.kind for server in servers}
        profile = profile_of(snapshot.stacks, snapshot.interval, kinds, self._hertz, unix_s)
        if not self._board.show(pprof_message(profile), time.monotonic(), STALE_S):
            self._say("a minute's profile does not fit its bound: it is lost")


def profile_of(
    minute: RecentStacks,
    last: Attribution,
    kinds: Mapping[str, str],
    hertz: int,
    unix_s: float,
) -> Profile:
    """`last`: the minute's last interval; `kinds`: server kinds by name; `unix_s`: its end."""
    types = types_of(last)
    return Profile(
        "qjoule agent",
        fmt.one_line(os.uname().nodename),
        round((unix_s - minute.seconds) * 1e9),
        round(minute.seconds * 1e9),
        tuple(map(fmt.one_line, (*_summary(minute, last, hertz), *_missing_lines(minute)))),
        types,
        tuple(samples_of(minute.rows.values(), kinds, types, stacks=True)),
    )


def _summary(minute: RecentStacks, last: Attribution, hertz: int) -> Iterator[str]:
    yield f"{graded(last)}, idle {last.policy.get('idle', '')}"
    rows = minute.rows.values()
    count = sum(row_stacks.count for row_stacks in rows)
    yield f"{count} samples of statements, {hertz} per second of CPU time"
    if last.domains and (total_nj := sum(row_stacks.row.energy_nj for row_stacks in rows)) > 0:
        sampled_nj = sum(row_stacks.row.energy_nj for row_stacks in rows if row_stacks.count)
        share = sampled_nj / total_nj
        yield f"{share:.1%} of {total_nj / 1e9:.6g} J are of statements that have a sample"


def _missing_lines(minute: RecentStacks) -> Iterator[str]:
    """Says which samples are lost or unknown, and why."""
    for why, count in minute.losses.items():
        yield f"{count} samples are lost: {why}"
    if minute.unknown:
        yield (
            f"{minute.unknown} samples are of no known statement: its text was not read yet, or "
            "the kernel side had no place for its sum"
        )
    if minute.left_out_nj:
        joules = minute.left_out_nj / 1e9
        yield f"{joules:.6g} J are left out: of statements beyond the {MOST_ROWS:,} that are kept"
    if other_samples := _samples_with(minute, OTHER):
        yield (
            f"{other_samples} samples are {OTHER}: a statement has at most {MOST_OF_ROW:,} "
            f"different stacks, and all together {MOST:,}"
        )
    if cut := _samples_with(minute, CUT):
        yield (
            f"{cut} samples are not followed to their thread's entry: code that was mapped or "
            "compiled after the agent began, or a server that has started since"
        )
    yield from minute.missing


def _samples_with(minute: RecentStacks, frame: str) -> int:
    return sum(
        count
        for row_stacks in minute.rows.values()
        for stack, count in row_stacks.samples.items()
        if frame in stack
    )
