"""The whole engine behind one door: segments in, a ledger of joules with intervals out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from qjoule.model.account import Account
from qjoule.model.arrays import LostTime, Machine, Segments
from qjoule.model.coefficients import Coefficients, IdlePolicy
from qjoule.model.counters import I64, UPDATE_PERIOD_NS, WindowEnergy, as_counted
from qjoule.model.fit.rows import ClassOf, itself
from qjoule.model.ledger import Ledger
from qjoule.model.windows import SegmentWindows

#: Group to the class whose power is learned as one: an array, a function, or None: its own.
FactorOf = Callable[[int], int] | I64 | None


@dataclass
class Engine:
    """Attributes segments, given in order of `t0_ns`, to their groups.

    `refit`: learn from the windows themselves what power is drawn by whom; of no use where the
    total was computed from the load.

    >>> engine = Engine(machine, energy)          # doctest: +SKIP
    >>> for part in chunks: engine.add(part)
    >>> ledger = engine.finish()
    """

    machine: Machine
    energy: WindowEnergy
    lost: Sequence[LostTime] = ()
    coefficients: Coefficients = field(default_factory=Coefficients)
    idle: IdlePolicy = "separate"
    period_ns: int = UPDATE_PERIOD_NS
    factor_of: FactorOf = None
    refit: bool = True

    def __post_init__(self) -> None:
        energy = as_counted(self.energy, self.period_ns)
        self.windows = SegmentWindows(self.machine, energy, self.lost)
        self._account = Account(
            self.energy.series,
            self.machine.packages,
            self.coefficients,
            self.idle,
            self.period_ns,
            class_of=class_of(self.factor_of),
            refit=self.refit,
        )

    def add(self, segments: Segments) -> None:
        """Takes segments; holds them until their block of windows is whole."""
        self._account.add(self.windows.add(segments))

    def finish(self) -> Ledger:
        """The ledger of all segments."""
        self._account.add(self.windows.finish())
        return self._account.finish()


def class_of(factor_of: FactorOf) -> ClassOf:
    """`factor_of` as a function of arrays. Groups beyond an array are classes of their own."""
    if factor_of is None:
        return itself
    if isinstance(factor_of, np.ndarray):
        table = factor_of.astype(np.int64)

        def look_up(groups: I64) -> I64:
            if not len(table):
                return groups
            known = groups < len(table)
            return np.where(known, table[np.minimum(groups, len(table) - 1)], groups + len(table))

        return look_up
    one = factor_of

    def ask(groups: I64) -> I64:
        unique, inverse = np.unique(groups, return_inverse=True)
        found = np.array([one(int(group)) for group in unique], np.int64)
        return found[inverse.reshape(-1)] if len(unique) else groups

    return ask
