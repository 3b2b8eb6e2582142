"""From a trace's windows to the statistical rung: what serving used, span by span, and to whom
it is given. What shapes get is taken from the server's serving rows, to the nanojoule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qjoule.contract import Rung
from qjoule.model.arrays import F64
from qjoule.model.counters import I64
from qjoule.model.interval import Z95
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.query_groups import Calls
from qjoule.model.split import apportion
from qjoule.model.statistical import Costs, costs

STATISTICAL = Rung.STATISTICAL.name.lower()
SPAN_NS = 250_000_000  #: a request's work is in the span that it came in, but for the edges
SPANS_MAX = 4096
SHAPES_MAX = 64  #: of a server; what is rarer stays with its stages
CPU_TIME = ""  #: beside the names of domains
_SERVING = (
    *("Native-Transpor", "ReadStage", "MutationStage", "CounterMutation", "ViewMutation"),
    *("RequestRespons", "SharedPool-Work", "epollEventLoopG", "nioEventLoopGro"),
    "ferretdb",
)


def is_serving(role: str) -> bool:
    """Whether threads of this role work for requests, as far as names tell (15 bytes of them).

    Cassandra's stages: org.apache.cassandra.concurrent.Stage. Its workers are shared, and called
    by the stage that they work for at the time. All threads of a FerretDB are called as it is.
    """
    return role.startswith(_SERVING)


@dataclass
class Spans:
    """Sums per span: energy and CPU time of each statistical server's serving rows, and requests.

    `bounds_ns`: of the windows. `labels`: by group; there may be more groups than labels.
    """

    bounds_ns: I64
    labels: Sequence[GroupLabel]
    _used: dict[tuple[str, str], F64] = field(default_factory=dict)
    _counts: dict[int, F64] = field(default_factory=dict)

    def __post_init__(self) -> None:
        windows = max(len(self.bounds_ns) - 1, 0)
        length = max(int(self.bounds_ns[-1] - self.bounds_ns[0]) if windows else 0, 1)
        self.count = max(min(length // SPAN_NS, SPANS_MAX, windows), 1)
        begins = (self.bounds_ns[:-1] - self.bounds_ns[0]).astype(np.float64)
        self._span = np.minimum((begins / length * self.count).astype(np.int64), self.count - 1)
        self.servers = sorted(
            {one.server for one in self.labels if one.kind == "queries" and one.rung == STATISTICAL}
        )
        self._serving = {server: self._groups_of(server, "background") for server in self.servers}
        self._shapes = {server: self._groups_of(server, "queries") for server in self.servers}

    def add(self, domain: str, windows: I64, group: I64, used: I64) -> None:
        """What entries (by window of the trace) used of a domain, or of CPU_TIME."""
        for server, serving in self._serving.items():
            mine = np.isin(group, serving)
            if mine.any():
                total = self._used.setdefault((server, domain), np.zeros(self.count))
                span = self._span[windows[mine]]
                total += np.bincount(span, used[mine].astype(np.float64), self.count)

    def add_calls(self, calls: Calls) -> None:
        """Requests, by when they came."""
        window = np.searchsorted(self.bounds_ns, calls.end_ns, "right") - 1
        inside = (window >= 0) & (window < len(self._span))
        wanted = np.concatenate([*self._shapes.values(), np.zeros(0, np.int64)])
        for group in np.intersect1d(calls.group, wanted).tolist():
            rows = inside & (calls.group == group)
            counts = self._counts.setdefault(group, np.zeros(self.count))
            counts += np.bincount(
                self._span[window[rows]], calls.executions[rows].astype(np.float64), self.count
            )

    def settle(self, ledger: Ledger) -> tuple[list[GroupLabel], list[str]]:
        """Gives shapes their part of `ledger`'s serving rows; labels with flags, and notes."""
        labels, notes = list(self.labels), []
        ledger.grow(len(labels))
        dt_ns = np.bincount(
            self._span, np.diff(self.bounds_ns).astype(np.float64), self.count
        ).astype(np.float64)
        for server in self.servers:
            shapes = self._most_called(server)
            counts = np.stack([self._counts[g] for g in shapes], axis=1) if shapes else None
            told = np.zeros(len(shapes), bool)
            together = np.zeros(len(shapes), bool)
            for domain in (CPU_TIME, *ledger.domain_names):
                used = self._used.get((server, domain))
                if counts is None or used is None:
                    continue
                found = costs(used, counts, dt_ns)
                if found.reason and domain == CPU_TIME:
                    notes.append(f"{server}: joules per shape cannot be told: {found.reason}")
                whom = (np.array(shapes), counts.sum(axis=0), self._serving[server])
                self._give(ledger, domain, whom, found)
                if domain in (ledger.main, CPU_TIME):
                    told, together = found.told, ~found.apart
            self._flag(
                labels, server, dict(zip(shapes, zip(told, together, strict=True), strict=True))
            )
        return labels, notes

    def _groups_of(self, server: str, kind: str) -> I64:
        rows = [
            number
            for number, one in enumerate(self.labels)
            if one.kind == kind
            and one.server == server
            and (one.rung == STATISTICAL if kind == "queries" else is_serving(one.shape))
        ]
        return np.array(rows, np.int64)

    def _most_called(self, server: str) -> list[int]:
        calls = {
            g: float(self._counts[g].sum())
            for g in self._shapes[server].tolist()
            if g in self._counts
        }
        most = sorted(calls, key=lambda group: (-calls[group], group))[:SHAPES_MAX]
        return sorted(group for group in most if calls[group] > 0)

    def _give(self, ledger: Ledger, domain: str, whom: tuple[I64, F64, I64], found: Costs) -> None:
        """Moves what was told, at most all that there is, in whole units.

        `whom`: groups of the shapes, their calls, groups of the serving rows.
        """
        shapes, calls, serving = whom
        sums = ledger.cpu_ns if domain == CPU_TIME else ledger.domains[domain].energy_nj
        there = int(sums[serving].sum())
        wanted = np.where(found.told, found.value * calls, 0.0)
        total = min(round(float(wanted.sum())), there)
        if domain != CPU_TIME:
            self._add_errors(ledger, domain, whom, found)
        if total <= 0:
            return
        given = apportion(np.array([total]), np.zeros(len(shapes), np.int64), wanted)
        taken = apportion(
            np.array([total]),
            np.zeros(len(serving), np.int64),
            sums[serving].astype(np.float64),
        )
        if domain != CPU_TIME:
            shared = ledger.domains[domain].shared_nj
            part = apportion(
                np.array([int(shared[serving].sum() * (total / there))]),
                np.zeros(len(shapes), np.int64),
                wanted,
            )
            back = apportion(
                np.array([int(part.sum())]),
                np.zeros(len(serving), np.int64),
                shared[serving].astype(np.float64),
            )
            shared[shapes] += part
            shared[serving] -= back
        sums[shapes] += given
        sums[serving] -= taken

    def _add_errors(
        self, ledger: Ledger, domain: str, whom: tuple[I64, F64, I64], found: Costs
    ) -> None:
        """The regression's, on top of the error of what was regressed, which is common to all.

        What was not told is not nothing: it may be as much as the data allow.
        """
        sums, (shapes, calls, serving) = ledger.domains[domain], whom
        there = max(int(sums.energy_nj[serving].sum()), 1)
        common = float(sums.errors.model_nj[serving].sum()) / there
        value = np.where(found.told, found.value, 0.0)
        half = np.maximum(found.high - value, value - found.low) * calls
        if found.reason:
            half = np.full(len(shapes), float(there))
        own = np.minimum(half, there) / Z95
        sums.errors.add("model_nj", shapes, np.hypot(own, common * value * calls))
        whole = min(float(np.sqrt((own**2).sum())), there / Z95)
        sums.errors.add("model_nj", serving, whole * sums.energy_nj[serving] / there)

    def _flag(
        self, labels: list[GroupLabel], server: str, found: dict[int, tuple[bool, bool]]
    ) -> None:
        for group in self._shapes[server].tolist():
            told, together = found.get(group, (False, False))
            flags = [*labels[group].flags, STATISTICAL]
            if together:
                flags.append("not_separable")
            if not told:
                flags.append("untold")
            labels[group] = replace(labels[group], flags=tuple(flags))


def with_statistical(
    ledger: Ledger, spans: Spans, calls: Iterable[Calls]
) -> tuple[list[GroupLabel], list[str]]:
    """The ledger's labels once the statistical rung has been settled, and its notes."""
    for some in calls:
        spans.add_calls(some)
    return spans.settle(ledger)
