# SPDX-License-Identifier: Apache-2.0
"""What joules cost and emit, as `option_groups.costs` ask for it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qjoule.commands.option_groups import Costs
from qjoule.commands.without_root import CURRENCY
from qjoule.engine import recorded
from qjoule.errors import QjouleError, UsageError
from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.impact import (
    CARBON,
    PRICE,
    Embodied,
    Factor,
    Factors,
    embodied_grams,
    mean_factor,
    parse_series,
    parse_value,
)
from qjoule.model.result import Attribution
from qjoule.trace.reader import Trace

_EMBODIED = re.compile(r"([0-9]+(?:\.[0-9]+)?)(/h)?")
_NUMERIC = re.compile(r"[-+.0-9]")
_LARGEST_EMBODIED = 1e9  #: g: a thousand tonnes


def factors(asked: Costs, traces: Mapping[str, Trace], result: Attribution) -> Factors | None:
    """The factors for the joules of `result`, which comes from `traces`; None if no option was
    given.

    Raises:
        UsageError: an invalid price, intensity or embodied carbon.
        QjouleError: a file that cannot be read, is not a series, or does not cover the traces.
    """
    if not asked.anything:
        return None
    price_text, currency = asked.price, ""
    if price_text and (named := CURRENCY.fullmatch(price_text)):
        price_text, currency = named[1], named[2]
    price = carbon = embodied = None
    if price_text is not None:
        constant = price_text.removesuffix("/kWh")
        if _NUMERIC.match(price_text) and constant == price_text and not Path(price_text).exists():
            raise UsageError(f"--price {asked.price}: of what? write {price_text}/kWh")
        is_constant = constant != price_text
        price = _factor("--price", constant, PRICE, traces, result, is_constant=is_constant)
    if asked.carbon is not None:
        is_constant = bool(_NUMERIC.match(asked.carbon)) and not Path(asked.carbon).exists()
        carbon = _factor("--carbon", asked.carbon, CARBON, traces, result, is_constant=is_constant)
    if asked.embodied is not None:
        embodied = _embodied(asked.embodied, traces)
    pue = asked.pue if asked.pue is not None else 1.0
    if not math.isfinite(pue):
        raise UsageError("--pue must be a number from 1 to 10")
    return Factors(pue, price, currency, carbon, embodied)


def _factor(
    option: str,
    text: str,
    column: str,
    traces: Mapping[str, Trace],
    result: Attribution,
    *,
    is_constant: bool,
) -> Factor:
    if is_constant:
        try:
            return Factor(parse_value(text, column, f"{option} {text}"), "constant")
        except QjouleError as error:
            raise UsageError(str(error)) from error
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise QjouleError(f"{option}: cannot read {path}: {reason}") from error
    steps = parse_series(content, column, str(path))
    bounds, energies = [], []
    for name, trace in traces.items():
        boundaries_ns, energy_nj = _windows(trace, name, result.energy_source.main_domain)
        if boundaries_ns[0] < steps.times_ns[0] or boundaries_ns[-1] > steps.end_ns:
            raise QjouleError(
                f"{path} does not cover {name}: it needs values from its begin to its end"
            )
        bounds.append(boundaries_ns)
        energies.append(energy_nj)
    weights = [max(float(one.sum()), 0.0) for one in energies]
    means = [mean_factor(steps, *each) for each in zip(bounds, energies, strict=True)]
    mean = float(np.average(means, weights=weights if sum(weights) else None))
    return Factor(mean, f"mean of {path.resolve().name} over the trace, weighted by its energy")


def _windows(trace: Trace, name: str, domain: str) -> tuple[I64, F64]:
    """Boundaries (since 1970) and energies of the trace's windows."""
    offset_ns = trace.meta.realtime_offset_ns
    if offset_ns is None:
        raise QjouleError(f"{name} does not say when it was recorded: give a constant instead")
    found = recorded.windows(trace)
    mine = [one.domain == domain for one in found.series]
    energy_nj = np.where(found.known, found.energy_nj, 0)[mine].sum(axis=0)
    return found.boundaries_ns + offset_ns, np.maximum(energy_nj, 0).astype(np.float64)


def _embodied(text: str, traces: Mapping[str, Trace]) -> Embodied:
    found = _EMBODIED.fullmatch(text) if text.isascii() else None
    if found is None or float(found[1]) > _LARGEST_EMBODIED:
        raise UsageError(f"--embodied {text}: give grams of CO2e, of the whole trace or as G/h")
    duration_s = sum(max(one.end_ns - one.begin_ns, 0) * 1e-9 for one in traces.values())
    grams = embodied_grams(float(found[1]), per_hour=bool(found[2]), duration_s=duration_s)
    how = f"{found[1]} g/h over {duration_s:.6g} s" if found[2] else "as given, for the whole trace"
    return Embodied(grams, how)
