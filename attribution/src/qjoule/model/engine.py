"""The whole engine behind one door: segments in, a ledger of joules with intervals out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from qjoule.model.arrays import LostTime, Machine, Segments
from qjoule.model.coefficients import Coefficients, IdlePolicy
from qjoule.model.counters import I64, UPDATE_PERIOD_NS, WindowEnergy
from qjoule.model.ledger import Ledger
from qjoule.model.windows import SegmentWindows

#: Group to the class whose power is learned as one: an array, a function, or None: its own.
FactorOf = Callable[[int], int] | I64 | None


@dataclass
class Engine:
    """Attributes segments, given in order of `t0_ns`, to their groups.

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
        self.windows = SegmentWindows(self.machine, self.energy, self.lost)
        self.ledger = Ledger(
            self.energy.series,
            self.machine.packages,
            self.coefficients,
            self.idle,
            self.period_ns,
        )

    def add(self, segments: Segments) -> None:
        """Takes segments; may hold them until their block of windows is whole."""
        self.ledger.add(self.windows.add(segments))

    def finish(self) -> Ledger:
        """The ledger of all segments."""
        self.ledger.add(self.windows.finish())
        return self.ledger
