# SPDX-License-Identifier: Apache-2.0
"""Sleeps of packages and cores, and what is drawn after threads stopped running.

Energy that is drawn while its owner does not run is a **charge**: it begins and ends at known
times, and belongs to one slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from studies.bench.accuracy.recording import F64, I64

#: Sleeps that a predicting governor remembers, as Linux' menu governor does.
REMEMBERED = 8
SHALLOW = 0.1  #: energy of waking from a state that is not the deepest, over that


@dataclass(frozen=True)
class Sleeps:
    """n sleeps of one package or core, in time order.

    `sleeper` is the slice that ended last before it, -1 at the run's begin; `waker` the one that
    ended it, -1 at the run's end.
    """

    begin_ns: I64
    end_ns: I64
    sleeper: I64
    waker: I64


def sleeps(t0_ns: I64, t1_ns: I64, rows: I64, span_ns: tuple[int, int]) -> Sleeps:
    """Times in which none of the slices `rows` ran. Of slices that end together, the last counts.

    `t0_ns`, `t1_ns` are of all slices.
    """
    begin_ns, end_ns = span_ns
    if not len(rows):
        none = np.array([-1])
        return Sleeps(np.array([begin_ns]), np.array([end_ns]), none, none)
    rows = rows[np.argsort(t0_ns[rows], kind="stable")]
    start, end = t0_ns[rows], t1_ns[rows]
    reach = np.maximum.accumulate(end)
    last = rows[np.maximum.accumulate(np.where(end >= reach, np.arange(len(rows)), 0))]
    begins = np.concatenate([[begin_ns], reach])
    ends = np.concatenate([start, [end_ns]])
    some = begins < ends
    sleeper = np.concatenate([[-1], last])[some]
    waker = np.concatenate([rows, [-1]])[some]
    return Sleeps(begins[some], ends[some], sleeper, waker)


@dataclass(frozen=True)
class Charges:
    """n charges, all (n,): `row` is the slice that each belongs to.

    The power is `shared` times the package's shared power, plus `clock` times the clock power of
    the slice's core, plus `core_w` in the core and `package_w` elsewhere in the package.
    """

    row: I64
    t0_ns: I64
    t1_ns: I64
    shared: F64
    clock: F64
    core_w: F64
    package_w: F64

    @staticmethod
    def of(row: I64, t0_ns: I64, t1_ns: I64, **watts: F64) -> Charges:
        """Charges with the given powers; the others are 0. Charges that take no time are left
        out.
        """
        some = t1_ns > t0_ns
        names = ("shared", "clock", "core_w", "package_w")
        columns = (np.broadcast_to(watts.get(n, np.zeros(1)), row.shape)[some] for n in names)
        return Charges(row[some], t0_ns[some], t1_ns[some], *columns)

    @staticmethod
    def join(parts: Sequence[Charges]) -> Charges:
        """All of them."""
        if not parts:
            none = np.zeros(0, np.int64)
            return Charges.of(none, none, none)
        columns = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Charges))
        return Charges(*columns)


@dataclass(frozen=True)
class Tail:
    """What a package or a core draws after its last thread went to sleep.

    Step k lasts until `until_ns[k]` after that, at `share[k]` of the shared power (package) or of
    the core's clock power (core). Waking costs `wake_nj` from the deepest state and a tenth of it
    from others, drawn over `wake_ns`. `governor` "predicting": after sleeps that were long on
    average, the deepest state is entered at once.
    """

    until_ns: tuple[int, ...]
    share: tuple[float, ...]
    wake_nj: float
    wake_ns: int
    governor: str = "ladder"
    tick_ns: int = 0


def tail_charges(sleeps: Sleeps, tail: Tail, quantity: str, end_ns: int) -> list[Charges]:
    """The tail after each sleep began, and the energy of each wake-up.

    `quantity`: what the tail has a share of, as a column of `Charges`.
    """
    length = sleeps.end_ns - sleeps.begin_ns
    deepest = tail.until_ns[-1]
    direct = (
        _predicted(length) >= deepest
        if tail.governor == "predicting"
        else np.zeros(len(length), bool)
    )
    charges: list[Charges] = []
    before: I64 | int = 0
    for until, share in zip(_until(sleeps, tail), tail.share, strict=True):
        # A state that is entered at once still takes as long to enter as to leave.
        short = tail.wake_ns if not charges else 0
        last = np.minimum(until, np.where(direct, short, until))
        t0 = sleeps.begin_ns + before
        t1 = np.minimum(sleeps.begin_ns + last, sleeps.end_ns)
        has_sleeper = sleeps.sleeper >= 0
        power = {quantity: np.full(int(has_sleeper.sum()), share)}
        charges.append(
            Charges.of(sleeps.sleeper[has_sleeper], t0[has_sleeper], t1[has_sleeper], **power)
        )
        before = until
    woken = sleeps.waker >= 0
    t0 = sleeps.end_ns[woken]
    t1 = np.minimum(t0 + tail.wake_ns, end_ns)
    deep = (length > deepest) | direct
    energy_nj = tail.wake_nj * np.where(deep, 1.0, SHALLOW)[woken]
    watts = energy_nj / np.maximum(t1 - t0, 1)
    where = "package_w" if quantity == "shared" else "core_w"
    charges.append(Charges.of(sleeps.waker[woken], t0, t1, **{where: watts}))
    return charges


def _until(sleeps: Sleeps, tail: Tail) -> list[I64]:
    """(n,) the end of each step after each sleep's begin.

    Where a deeper state waits for the timer, a step ends at the tick before its end.
    """
    ends = []
    for until_ns in tail.until_ns:
        late = (sleeps.begin_ns + until_ns) % tail.tick_ns if tail.tick_ns else 0
        ends.append(np.maximum(until_ns - late, 0) + 0 * sleeps.begin_ns)
    return ends


def _predicted(length_ns: I64) -> F64:
    """Mean of the sleeps before each; 0 for those that have fewer than `REMEMBERED` before."""
    passed = np.append(0, np.cumsum(length_ns)).astype(np.float64)
    mean = np.zeros(len(length_ns))
    if len(length_ns) > REMEMBERED:
        mean[REMEMBERED:] = (passed[REMEMBERED:-1] - passed[: -REMEMBERED - 1]) / REMEMBERED
    return mean
