# SPDX-License-Identifier: Apache-2.0
"""Forms whose energy was apportioned from one total: what that total's error does to their ratio.

If the total is wrong by a factor, both forms' joules are wrong by that factor, and their ratio is
not. The error of the total therefore belongs into either form's interval, and not into the ratio's.
"""

from __future__ import annotations

import math
from dataclasses import replace

from qjoule.model.gpsup import Form, Interval


def without_total_error(form: Form, total_error: float) -> Form:
    """`form` with an interval that leaves out the relative 95 % error of the total.

    The error was added to the others in quadrature (`qjoule.model.interval`) and is taken out the
    same way. Errors that were added linearly (loss, idle power) come out wider than they are, not
    narrower: sqrt((h + l)^2 - t^2) >= sqrt(h^2 - t^2) + l. A lower end of 0 was cut off there, so
    it stays.
    """
    value, ends = form.j_per_call, form.j_per_call_ci95
    if value is None or ends is None or total_error <= 0:
        return form
    return replace(form, j_per_call_ci95=_narrowed(value, ends, total_error * value))


def _narrowed(value: float, ends: Interval, error: float) -> Interval:
    low, high = ends
    down, up = (math.sqrt(max(0.0, side**2 - error**2)) for side in (value - low, high - value))
    return (value - down if low > 0 else 0.0, value + up)
