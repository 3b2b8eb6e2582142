# SPDX-License-Identifier: Apache-2.0
"""Cost and emissions of joules, as the options `option_groups.costs` request."""

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


def factors(costs: Costs, traces: Mapping[str, Trace], result: Attribution) -> Factors | None:
    """Returns the factors for the joules of `result`, which comes from `traces`; None without
    options.

    Raises:
        UsageError: an invalid price, intensity or embodied carbon.
        QjouleError: a file that cannot be read, is not a series, or does not cover the traces.
    """
    if not costs.anything:
        return None
    price_text, currency = costs.price, ""
    if price_text and (match := CURRENCY.fullmatch(price_text)):
        price_text, currency = match[1], match[2]
    price = carbon = embodied = None
    if price_text is not None:
        constant = price_text.removesuffix("/kWh")
        if _NUMERIC.match(price_text) and constant == price_text and not Path(price_text).exists():
            raise UsageError(f"--price {costs.price}: of what? write {price_text}/kWh")
        is_constant = constant != price_text
        price = _factor("--price", constant, PRICE, traces, result, is_constant=is_constant)
    if costs.carbon is not None:
        is_constant = bool(_NUMERIC.match(costs.carbon)) and not Path(costs.carbon).exists()
        carbon = _factor("--carbon", costs.carbon, CARBON, traces, result, is_constant=is_constant)
    if costs.embodied is not None:
        embodied = _embodied(costs.embodied, traces)
    pue = costs.pue if costs.pue is not None else 1.0
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
    weights = [max(float(energy_nj.sum()), 0.0) for energy_nj in energies]
    means = [mean_factor(steps, *window) for window in zip(bounds, energies, strict=True)]
    mean = float(np.average(means, weights=weights if sum(weights) else None))
    return Factor(mean, f"mean of {path.resolve().name} over the trace, weighted by its energy")


def _windows(trace: Trace, name: str, domain: str) -> tuple[I64, F64]:
    """Returns boundaries (ns since 1970) and energies (nJ) of the trace's windows."""
    offset_ns = trace.meta.realtime_offset_ns
    if offset_ns is None:
        raise QjouleError(f"{name} does not say when it was recorded: give a constant instead")
    windows = recorded.windows(trace)
    in_domain = [series.domain == domain for series in windows.series]
    energy_nj = np.where(windows.known, windows.energy_nj, 0)[in_domain].sum(axis=0)
    return windows.boundaries_ns + offset_ns, np.maximum(energy_nj, 0).astype(np.float64)


def _embodied(text: str, traces: Mapping[str, Trace]) -> Embodied:
    match = _EMBODIED.fullmatch(text) if text.isascii() else None
    if match is None or float(match[1]) > _LARGEST_EMBODIED:
        raise UsageError(f"--embodied {text}: give grams of CO2e, of the whole trace or as G/h")
    duration_s = sum(max(trace.end_ns - trace.begin_ns, 0) * 1e-9 for trace in traces.values())
    grams = embodied_grams(float(match[1]), per_hour=bool(match[2]), duration_s=duration_s)
    how = f"{match[1]} g/h over {duration_s:.6g} s" if match[2] else "as given, for the whole trace"
    return Embodied(grams, how)
