# SPDX-License-Identifier: Apache-2.0
"""Pure functions on arrays: segments, windows and energy to joules per owner.

Command lines know the names of the idle policies without the rest of the model.
"""

from __future__ import annotations

from typing import Literal

IdlePolicy = Literal["separate", "even", "proportional"]
IDLE_POLICIES: tuple[IdlePolicy, ...] = ("separate", "even", "proportional")
