# SPDX-License-Identifier: Apache-2.0
"""The data of the statistical mode's regression: per span of time, what serving used and how many
requests came.

Spans are counted from the first window on. They are `SPAN_NS` long until there are more than
`SPANS_MAX`, then twice as long, and so on. So memory does not grow with time, and the same windows
give the same spans, whatever the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import numpy as np

from qjoule.model.arrays import F64, Renumbering, Requests
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import BY_CALLS, BY_THREAD, SESSION_OVERHEAD, SHAPE_OF, GroupLabel

#: except at its ends, a request's work is in the span in which the request came
SPAN_NS = 250_000_000
SPANS_MAX = 4096
SHAPES_HELD = 512  #: shapes with their own counts; later ones are counted together
CPU_TIME = ""  #: used in place of a domain's name
_FEWEST = 64  #: initial room for spans


class Roles:
    """The role of each group in the statistical mode, from its label. `labels` may grow.

    `serving`: prefixes of the names of threads' roles that work for requests.
    """

    def __init__(self, labels: Sequence[GroupLabel] = (), serving: tuple[str, ...] = ()) -> None:
        self.labels = labels
        self._serving = serving
        self.servers: list[str] = []  #: servers that have serving rows
        self._shapes: dict[str, int] = {}
        self._server = np.zeros(0, np.int64)
        self._asks = np.zeros(0, bool)
        self._by_calls = {label.server for label in labels if label.attach_mode == BY_CALLS}

    def server(self, group: I64) -> I64:
        """(n,) index in `servers` of the server whose serving row each group is; -1: none."""
        self._learn(int(group.max(initial=-1)))
        return self._server[group]

    def asks(self, group: I64) -> Bool:
        """(n,) whether each group is a shape whose requests are only counted."""
        self._learn(int(group.max(initial=-1)))
        return self._asks[group]

    def shape(self, group: int) -> int:
        """The first group of the same shape: a request costs the same in all of them."""
        name = dict(self.labels[group].keys).get(SHAPE_OF)
        return group if name is None else self._shapes.setdefault(name, group)

    def _learn(self, last: int) -> None:
        """Finds the roles of groups up to `last`. A group without a label has no role."""
        learned_count = len(self._server)
        if last < learned_count:
            return
        new_labels = [
            self.labels[g] if g < len(self.labels) else None for g in range(learned_count, last + 1)
        ]
        is_counted = [label is not None and label.is_counted for label in new_labels]
        self._asks = np.append(self._asks, np.array(is_counted, bool))
        server = [self._number(label) for label in new_labels]
        self._server = np.append(self._server, np.array(server, np.int64))

    def relearn(self) -> None:
        """Drops all roles; call it after the labels were renumbered."""
        self._shapes.clear()
        self._server, self._asks = np.zeros(0, np.int64), np.zeros(0, bool)

    def serves(self, label: GroupLabel) -> bool:
        """Whether a row's threads may work for requests that are only counted.

        If only its clients report a server's calls, any of its threads may.
        """
        if label.kind != "background":
            return label.serves
        any_thread = label.attach_mode == BY_THREAD or label.server in self._by_calls
        return (any_thread and label.shape != SESSION_OVERHEAD) or label.shape.startswith(
            self._serving
        )

    def _number(self, label: GroupLabel | None) -> int:
        if label is None or not self.serves(label):
            return -1
        if label.server not in self.servers:
            self.servers.append(label.server)
        return self.servers.index(label.server)


class SpanSums:
    """Sums by span: (spans,) each."""

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.used: dict[tuple[str, str], F64] = {}  #: by server, and domain (nJ) or CPU_TIME (ns)
        self.counts: dict[int, F64] = {}  #: requests by shape: `Roles.shape`
        self.calls: dict[int, float] = {}  #: requests of all spans, by group
        self.others: dict[str, F64] = {}  #: by server, of groups without their own counts
        self.dt_ns: F64 = np.zeros(_FEWEST)
        self._level = 0  #: a span is SPAN_NS << level
        self._begin_ns: int | None = None

    def copy(self) -> SpanSums:
        duplicate = copy(self)
        for name in ("used", "counts", "others"):
            setattr(
                duplicate, name, {key: sums.copy() for key, sums in getattr(self, name).items()}
            )
        duplicate.calls = dict(self.calls)
        duplicate.dt_ns = self.dt_ns.copy()
        return duplicate

    def add_time(self, boundaries_ns: I64) -> None:
        """Adds the lengths of windows that follow the earlier ones."""
        if len(boundaries_ns) < 2:
            return
        if self._begin_ns is None:
            self._begin_ns = int(boundaries_ns[0])
        span = self._spans(boundaries_ns[:-1])
        self.dt_ns += np.bincount(span, np.diff(boundaries_ns), len(self.dt_ns))

    def add_used(self, domain: str, begin_ns: I64, group: I64, used: I64) -> None:
        """Adds what groups used of a domain, or of CPU_TIME, in windows that began at
        `begin_ns`."""
        server = self.roles.server(group)
        for number in np.unique(server[server >= 0]).tolist():
            of_server = server == number
            span = self._spans(begin_ns[of_server])
            name = self.roles.servers[number]
            sums = self.used.setdefault((name, domain), np.zeros(len(self.dt_ns)))
            sums += np.bincount(span, used[of_server].astype(np.float64), len(sums))

    def add_requests(self, boundaries_ns: I64, requests: Requests) -> None:
        """Adds requests of windows whose time has been added."""
        rows = self.roles.asks(requests.group)
        if not rows.any():
            return
        group, executions = requests.group[rows], requests.executions[rows].astype(np.float64)
        span = self._spans(boundaries_ns[requests.window[rows]])
        # In order of time, then of group number, so that batches do not affect which shapes get
        # their own counts.
        distinct, first = np.unique(group, return_index=True)
        for shape_group in distinct[np.argsort(first, kind="stable")].tolist():
            of_group = group == shape_group
            sums = self._requests_of(self.roles.shape(shape_group))
            sums += np.bincount(span[of_group], executions[of_group], len(sums))
            self.calls[shape_group] = self.calls.get(shape_group, 0.0) + float(
                executions[of_group].sum()
            )

    def move(self, source: int, target: int) -> None:
        """Moves everything of group `source` to group `target`."""
        moved = self.counts.pop(source, None)
        if moved is not None:
            sums = self._requests_of(target)
            sums += moved
            self.calls[target] = self.calls.get(target, 0.0) + self.calls.pop(source, 0.0)

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups; `roles` must have been renumbered before."""
        counts, calls = self.counts, self.calls
        self.counts, self.calls = {}, {}
        for group, old_sums in counts.items():
            sums = self._requests_of(int(renumbering.group[group]))
            sums += old_sums
        for group, number in calls.items():
            target = int(renumbering.group[group])
            self.calls[target] = self.calls.get(target, 0.0) + number

    def _requests_of(self, group: int) -> F64:
        if group in self.counts or len(self.counts) < SHAPES_HELD:
            return self.counts.setdefault(group, np.zeros(len(self.dt_ns)))
        server = self.roles.labels[group].server
        return self.others.setdefault(server, np.zeros(len(self.dt_ns)))

    def _spans(self, begin_ns: I64) -> I64:
        """Returns the span of each window; makes room for it."""
        since_begin_ns = np.maximum(begin_ns - (self._begin_ns or 0), 0)
        last = int(since_begin_ns.max(initial=0)) // SPAN_NS
        while last >> self._level >= len(self.dt_ns):
            if len(self.dt_ns) < SPANS_MAX:
                self._remake(_widened)
            else:
                self._remake(_halved)
                self._level += 1
        return (since_begin_ns // SPAN_NS) >> self._level

    def _remake(self, resize: Callable[[F64], F64]) -> None:
        self.dt_ns = resize(self.dt_ns)
        self.used = {key: resize(sums) for key, sums in self.used.items()}
        self.counts = {key: resize(sums) for key, sums in self.counts.items()}
        self.others = {key: resize(sums) for key, sums in self.others.items()}


def _widened(sums: F64) -> F64:
    return np.append(sums, np.zeros(len(sums)))


def _halved(sums: F64) -> F64:
    """Joins pairs of spans, and makes room for as many new ones."""
    return np.append(sums.reshape(-1, 2).sum(axis=1), np.zeros(len(sums) // 2))
