# SPDX-License-Identifier: Apache-2.0
"""Removes the error of a common total from forms whose ratio is compared.

If the total is wrong by a factor, both forms' joules are wrong by that factor, but their ratio is
not. The error of the total therefore belongs in each form's interval, but not in the ratio's.
"""

from __future__ import annotations

import math
from dataclasses import replace

from qjoule.model.gpsup import Form, Interval


def without_total_error(form: Form, total_error: float) -> Form:
    """`form` with an interval that leaves out the relative 95 % error of the total.

    The error was added to the others in quadrature (`qjoule.model.interval`) and is removed in the
    same way. Errors that were added linearly (loss, idle power) come out too wide, never too
    narrow: sqrt((h + l)^2 - t^2) >= sqrt(h^2 - t^2) + l. A lower end of 0 was clipped there, so it
    stays, unless the form itself knows its interval without that error.
    """
    value, ends = form.j_per_call, form.j_per_call_ci95
    if value is None or ends is None or total_error <= 0:
        return form
    if form.same_total_ci95 is not None:
        return replace(form, j_per_call_ci95=form.same_total_ci95)
    return replace(form, j_per_call_ci95=_narrowed(value, ends, total_error * value))


def _narrowed(value: float, ends: Interval, error: float) -> Interval:
    low, high = ends
    down, up = (math.sqrt(max(0.0, side**2 - error**2)) for side in (value - low, high - value))
    return (value - down if low > 0 else 0.0, value + up)
