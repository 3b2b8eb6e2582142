# SPDX-License-Identifier: Apache-2.0
"""The names of the idle policies, which command lines know without the model."""

from __future__ import annotations

from typing import Literal

IdlePolicy = Literal["separate", "even", "proportional"]
IDLE_POLICIES: tuple[IdlePolicy, ...] = ("separate", "even", "proportional")
