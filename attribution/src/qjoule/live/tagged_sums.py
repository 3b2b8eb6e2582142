# SPDX-License-Identifier: Apache-2.0
"""Finds the tags that clients sent to the server, for the sums of a live stream.

Tags are in statements or belong to connections. The kernel side keeps a sum for each hash of tags,
and for each part of a session between two of its events (`naming`). Precedence is the same as in a
recording (`qjoule.stream.client_tags`). Sums do not show which calls an application's shim has
reported, so tags of its connections are not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.contract import SAID_UNKNOWN, SHAPE_OTHER
from qjoule.engine.live_records import Tagged
from qjoule.live.window_assembler import Records
from qjoule.model.energy import I64, Bool
from qjoule.stream.blocks import Frame
from qjoule.stream.client_tags import ClientTags
from qjoule.stream.reported_calls import CallReports
from qjoule.stream.session_updates import MAX_SESSIONS
from qjoule.stream.sessions import Sessions
from qjoule.tags.definitions import Tags

#: Events of another CPU may arrive this much later.
LATE_NS = 1_000_000_000


@dataclass(frozen=True)
class SumTags:
    """The tags of some sums, as far as known."""

    places: I64  #: (n,) index of each record's tags in `tags`
    tags: Sequence[Tagged]
    counts: Bool  #: (n,) whether its calls are counted by tag here, and not by the clients' reports

    def with_calls(self, calls: Records) -> I64:
        """`places`, followed by those of client-reported calls, whose shapes have tags."""
        return np.append(self.places, np.zeros(len(calls), np.int64))


def untagged(sums: Records) -> SumTags:
    """No tags are known."""
    return SumTags(np.zeros(len(sums), np.int64), (None,), np.zeros(len(sums), np.bool_))


class TaggedSums:
    """Takes TEXT and SESSION blocks; `of` returns the tags of a window's sums."""

    def __init__(self, reports: CallReports | None) -> None:
        self._reports = reports
        self._sent = ClientTags()
        self._sessions = Sessions()
        self._waiting: dict[int, tuple[int, int]] = {}  #: namings: session and time
        #: By naming: its connection's tags, and the connection's name at its other end.
        self._named: dict[int, tuple[Tags, str | None]] = {}

    def add_text(self, frame: Frame) -> bool:
        """False if it is a statement's text, or does not consist of tags."""
        return self._sent.take(frame, of_queries=False)

    def add_session(self, frame: Frame) -> None:
        record = frame.records[0]
        if self._sessions.add(frame) and (naming := int(record["naming"])):
            self._waiting[naming] = int(record["session"]), int(record["t_ns"])

    def of(self, sums: Records) -> SumTags:
        """Requires that all earlier blocks of the stream have been added."""
        self._learn()
        namings, rows = np.unique(sums["naming"], return_inverse=True)
        known = [self._recall(naming) for naming in namings.tolist()]
        rows = rows.reshape(-1)
        words = [tags for tags, _ in known]
        places, found = self._sent.together(np.zeros_like(rows), sums["tags"], (rows, words))
        crowded = (sums["naming"] == SAID_UNKNOWN) | (sums["shape"] == SHAPE_OTHER)
        unknown = crowded.copy()
        if self._reports is not None:
            reported = self._reports.calls_on([connection for _, connection in known])
            nameless = np.array([connection is None for _, connection in known], np.bool_)
            says = np.array([bool(tags) for tags in found], np.bool_)[places]
            unknown |= np.array(reported, np.bool_)[rows] & ~(nameless[rows] & says)
        places = np.where(unknown, len(found), places)
        return SumTags(places, [*map(dict, found), None], ~unknown | crowded)

    def _recall(self, naming: int) -> tuple[Tags, str | None]:
        known = self._named.pop(naming, None)
        if known is None:
            return (), None
        self._named[naming] = known  # moved to the end: most recently used
        return known

    def _learn(self) -> None:
        """An event changes a session's tags only once all earlier events have arrived."""
        self._sessions.take_rows()
        if not self._waiting:
            return
        of = np.array(list(self._waiting.values()), np.uint64).reshape(-1, 2)
        sessions, at_ns = of[:, 0], of[:, 1]
        applications = self._sessions.names_of(sessions, at_ns)[2]
        codes, tags = self._sessions.tags_of(sessions, at_ns, applications) or (None, [])
        which, connections = self._sessions.connections(sessions, at_ns)
        for at, naming in enumerate(self._waiting):
            code = -1 if codes is None else int(codes[at])
            whose = tags[code] if code >= 0 else ()
            self._named[naming] = whose, connections[int(which[at])]
            if len(self._named) > MAX_SESSIONS:
                self._named.pop(next(iter(self._named)))
        self._waiting.clear()
        self._sessions.settle(max(0, int(at_ns.max()) - LATE_NS))
