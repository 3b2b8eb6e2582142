# SPDX-License-Identifier: Apache-2.0
"""What a kernel's table of idle states says of the power that lingers after a sleep.

Target residency: how long a sleep must last for a state to save energy in comparison with a
shallower one. A governor enters a state only if it expects such a sleep (Linux,
Documentation/admin-guide/pm/cpuidle.rst). So a core may stay in a shallow state for about as long
as the target residency of the deepest state that is on, and hardly longer. Where there is no deeper
state than the first, nothing lingers: the power after a sleep is the power at rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64, TAILS_NS

#: Governors are wrong about the length of a sleep. A wrong guess ends at the next tick at the
#: latest; most end within this many target residencies.
_BEYOND = 1.5
#: Of the belief without a table. Firmware has states of its own, of which a table says nothing.
_LEAST, _MOST = 0.25, 1.5


@dataclass(frozen=True)
class IdleTable:
    """`residency_ns`, `exit_ns` (states,): target residencies and exit latencies, >= 0, of the
    states that are on, in any order. At least one state. Raises `ValueError` otherwise."""

    residency_ns: tuple[int, ...]
    exit_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        both = (*self.residency_ns, *self.exit_ns)
        if not both or len(self.residency_ns) != len(self.exit_ns) or min(both) < 0:
            raise ValueError(
                "a table of idle states has as many residencies as latencies, all >= 0"
            )

    @property
    def tails(self) -> F64:
        """(5,) by how much wider the belief about the power of each of `TAILS_NS` is than without.

        Lengths that the states reach have all of the belief, so each of them is wider where there
        are few; longer ones are shrunk.
        """
        reach_ns = _BEYOND * max(self.residency_ns)
        share = np.minimum(1.0, reach_ns / np.array(TAILS_NS, np.float64))
        wider = np.sqrt(len(share) / np.maximum((share**2).sum(), 1e-30))
        # If not even the shortest tail is reached, there is no belief to move.
        share *= 1.0 + (min(float(wider), _MOST) - 1.0) * share.max()
        return np.asarray(np.maximum(share, _LEAST))

    @property
    def wake_ns(self) -> float:
        """Time to leave the deepest state; a wake-up costs about the tail's power for so long."""
        return float(max(self.exit_ns))
