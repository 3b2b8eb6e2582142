# SPDX-License-Identifier: Apache-2.0
"""A kernel's table of idle states, and what it says about power after a core falls asleep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64, TAILS_NS

#: Governors are wrong about the length of a sleep. A wrong guess ends at the next tick at the
#: latest; most end within this many target residencies.
_RESIDENCIES = 1.5
#: Relative to the prior without a table. Firmware has states that no table lists.
_LEAST_BELIEF, _MOST_BELIEF = 0.25, 1.5
#: States that only stop a core's clock are left within 20 us at most, those that switch it off take
#: 40 us and more (drivers/idle/intel_idle.c).
_DEEP_NS = 30_000


@dataclass(frozen=True)
class IdleTable:
    """A kernel's table of idle states, which limits the power that lingers after a core falls
    asleep.

    Target residency: how long a sleep must last for a state to save energy in comparison with a
    shallower one. A governor enters a state only if it expects such a sleep (Linux,
    Documentation/admin-guide/pm/cpuidle.rst), so a core stays in a shallow state hardly longer than
    the deepest state's target residency. With one state, nothing lingers after a sleep.

    `residency_ns`, `exit_ns` (states,): target residencies and exit latencies, >= 0, of the
    states that are on, in any order. At least one state. Raises `ValueError` otherwise.
    """

    residency_ns: tuple[int, ...]
    exit_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        times_ns = (*self.residency_ns, *self.exit_ns)
        if not times_ns or len(self.residency_ns) != len(self.exit_ns) or min(times_ns) < 0:
            raise ValueError(
                "a table of idle states has as many residencies as latencies, all >= 0"
            )

    @property
    def tails(self) -> F64:
        """(5,) factor on the prior's standard error for the power of each of `TAILS_NS`.

        The prior's variance is divided among the lengths that the states reach, so each is wider if
        there are few; longer ones are narrowed.
        """
        reach_ns = _RESIDENCIES * max(self.residency_ns)
        width = np.minimum(1.0, reach_ns / np.array(TAILS_NS, np.float64))
        widening = np.sqrt(len(width) / np.maximum((width**2).sum(), 1e-30))
        # If not even the shortest tail is reached, nothing is widened.
        width *= 1.0 + (min(float(widening), _MOST_BELIEF) - 1.0) * width.max()
        return np.asarray(np.maximum(width, _LEAST_BELIEF))

    @property
    def deep(self) -> bool:
        """Whether a core can lose its clock and power, without which no package state is deep."""
        return max(self.exit_ns) >= _DEEP_NS

    @property
    def wake_ns(self) -> float:
        """Time to leave the deepest state; a wake-up costs about the tail's power for so long."""
        return float(max(self.exit_ns))
