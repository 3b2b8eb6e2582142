# SPDX-License-Identifier: Apache-2.0
"""The alarm: so much is missing that the figures of statements are wrong, not merely less sharp."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule.model.result import Attribution
from qjoule.reporters import format as fmt

ALARM_SHARE = 0.01  #: of requests, or of CPU time
#: Causes by which a request is missing. One that could not be framed may hide several more.
_REQUESTS = ("query", "framing")


def alarm(attribution: Attribution) -> str:
    """What of an attribution is missing to more than ALARM_SHARE; empty if nothing is."""
    rows = (*attribution.rows, *attribution.fixed)
    return alarm_of(
        attribution.trace.loss,
        sum(row.calls for row in attribution.rows),
        attribution.trace.lost_cpu_ns,
        sum(row.cpu_ns for row in rows),
    )


def alarm_of(
    loss: Mapping[str, int], counted: int, lost_cpu_ns: int = 0, cpu_ns: int | None = None
) -> str:
    """As `alarm`, from counts by cause.

    Args:
        counted: requests that were counted.
        cpu_ns: all CPU time that was attributed; None: not known.
    """
    words = []
    lost = sum(loss.get(cause, 0) for cause in _REQUESTS)
    if lost > ALARM_SHARE * (lost + counted):
        share = fmt.share(lost / (lost + counted))
        framing = loss.get("framing", 0)
        also = ", mostly by framing: a client that breaks its protocol can cause this"
        words.append(
            f"{share} of requests were lost ({fmt.count(lost)}, {fmt.count(counted)} seen"
            f"{also if framing > lost - framing else ''})"
        )
    if hidden := loss.get("opaque_session", 0) if not counted else 0:
        words.append(f"no request was seen, and {fmt.count(hidden)} sessions are hidden")
    if cpu_ns is not None and lost_cpu_ns > ALARM_SHARE * (lost_cpu_ns + cpu_ns):
        words.append(f"{fmt.share(lost_cpu_ns / (lost_cpu_ns + cpu_ns))} of CPU time was lost")
    return fmt.one_line("; ".join(words) + ": do not trust figures per statement") if words else ""
