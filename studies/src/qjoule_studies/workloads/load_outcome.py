# SPDX-License-Identifier: Apache-2.0
"""What became of an open loop's operations: arrays in, a run's figures and notes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule_studies.workload import Outcome
from qjoule_studies.workloads.closed_loop import latencies
from qjoule_studies.workloads.load_process import DRAIN_S
from qjoule_studies.workloads.open_loop import Sent

_LATE_NS = 1_000_000


@dataclass(frozen=True)
class Offered:
    """What was meant to arrive: for so long, of this peak (0 if unknown), with these notes."""

    seconds: float
    peak_per_s: float
    notes: tuple[str, ...] = ()


def outcome(
    processes: Sequence[tuple[Sent, npt.NDArray[np.int8]]],
    names: Sequence[str],
    offered: Offered,
) -> Outcome:
    """Of all processes together.

    Args:
        processes: of each, what became of its operations, and their places in `names`.

    Returns:
        Latencies count from the arrival, also where an operation waited for a connection. Errors
        are operations that failed, that were dropped because the queue was full, and that were
        not sent until the end. `wall_s` is from the beginning of the schedule to its end, or to
        the last operation's end if that is later: idle time is part of a load.
    """
    sent = [each for each, _ in processes]
    arrivals, sent_ns, done_ns = (
        np.concatenate([getattr(each, name) for each in sent])
        for name in ("arrivals_ns", "sent_ns", "done_ns")
    )
    failed, dropped = (
        np.concatenate([getattr(each, name) for each in sent]) for name in ("failed", "dropped")
    )
    commands = np.concatenate([own for _, own in processes])
    good = (done_ns >= 0) & ~failed
    taken_ns = done_ns - arrivals
    by_command = {name: taken_ns[good & (commands == place)] for place, name in enumerate(names)}
    operations = int(good.sum())
    end_s = max(offered.seconds, float(done_ns.max(initial=0)) / 1e9)
    troubles = _troubles(sent, arrivals, sent_ns, failed, dropped)
    return Outcome(
        operations,
        len(arrivals) - operations,
        end_s,
        "qjoule",
        latencies(by_command),
        (_summary(offered, len(arrivals), operations, end_s), *offered.notes, *troubles),
    )


def _summary(offered: Offered, arrived: int, operations: int, end_s: float) -> str:
    said = f"{arrived / offered.seconds:,.6g}/s arrived"
    if offered.peak_per_s:
        said += f" ({arrived / offered.seconds / offered.peak_per_s:.1%} of the peak)"
    return f"{said}, {operations / end_s:,.6g}/s were answered"


def _troubles(
    sent: Sequence[Sent],
    arrivals: npt.NDArray[np.int64],
    sent_ns: npt.NDArray[np.int64],
    failed: npt.NDArray[np.bool_],
    dropped: npt.NDArray[np.bool_],
) -> tuple[str, ...]:
    late = int(((sent_ns >= 0) & (sent_ns - arrivals > _LATE_NS)).sum())
    unsent = int(((sent_ns < 0) & ~dropped).sum())
    kinds = sorted({each.first_error for each in sent if each.first_error})
    found = (
        (late, "were sent more than 1 ms after their arrival, which is part of their latency"),
        (int(dropped.sum()), "arrived at a full queue and were not sent: errors"),
        (unsent, f"had not been sent {DRAIN_S:g} s after the last arrival: errors"),
        (int(failed.sum()), f"failed ({', '.join(kinds)}): errors"),
    )
    return tuple(
        f"{count:,} of {len(arrivals):,} operations {what}" for count, what in found if count
    )
