# SPDX-License-Identifier: Apache-2.0
"""`qjoule physical`: compares a joint run's split with what two loads add to the
machine."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from qjoule.api import QjouleError
from qjoule.api.command import ending_in_order, sanitise, say
from qjoule.api.screen import format as fmt
from qjoule.api.servers import perf_pmu, powercap_tree
from qjoule_studies.physical.experiment import Experiment, Plan, experiment
from qjoule_studies.physical.judgement import (
    Estimate,
    PhysicalTest,
    Side,
    Verdict,
    judge,
    share_above_rest,
)
from qjoule_studies.physical.machine import NOTHING_TO_MEASURE

SCHEMA = "qjoule.physical/1"
_WIDTH = 80
_LOADS = (("A", "computes"), ("B", "reads memory"))
_TOO_WIDE = 10.0  #: an error with an interval this wide is inconclusive
_COLOURS = {Verdict.AGREES: "green", Verdict.DIFFERS: "red", Verdict.CANNOT_TELL: "yellow"}


def physical(plan: Plan, *, threshold: float, as_json: bool) -> int:
    """Runs the test and prints its result. Exit code: 0 if it agrees, 1 if not or inconclusive.

    `threshold` is relative. Raises `QjouleError` if there is nothing to measure.
    """
    check_machine(plan.energy)
    with ending_in_order():
        done = experiment(plan, say)
    try:
        test = judge(done.rounds, threshold)
    except ValueError as error:
        raise QjouleError(f"cannot tell: {error}") from error
    if as_json:
        click.echo(json.dumps(to_json(test, done), indent=2, allow_nan=False))
    else:
        colour = False if os.environ.get("NO_COLOR") else None
        for line in render(test, done):
            click.echo(line, color=colour)
    return 0 if test.verdict is Verdict.AGREES else 1


def check_machine(energy: str) -> None:
    """Raises `QjouleError` if nothing can be recorded, or there is no counter that measures."""
    if os.geteuid() != 0:
        raise QjouleError("the physical test records, which needs root: run it again with sudo")
    if energy == "auto" and not (powercap_tree().ok or perf_pmu().ok):
        raise QjouleError(f"{NOTHING_TO_MEASURE}, and this machine shows none: see 'qjoule doctor'")


def render(test: PhysicalTest, done: Experiment) -> Iterator[str]:
    """Lines of at most 80 columns."""
    source, model = done.last.energy_source, done.last.model
    calibrated = "calibrated" if model.calibrated else "not calibrated"
    weight = {"cpu_time": "CPU time", "counters": "hardware counters"}.get(model.weight, "?")
    yield click.style("Physical test", bold=True) + (
        f"  {test.rounds} rounds of A alone, B alone, both"
    )
    yield sanitise(f"  energy  {source.name} ({source.grade}), {source.main_domain}")
    yield f"  split   by {weight}, {calibrated}"
    yield ""
    yield f"  {'':<14}{'alone W':>14}{'adds W':>14}{'adds':>9}{'split':>9}{'error ± 95 %':>18}"
    for (name, does), side in zip(_LOADS, (test.a, test.b), strict=True):
        yield (
            f"  {name + ' ' + does:<14}{_plus_minus(side.alone_w):>14}"
            f"{_plus_minus(side.adds_w):>14}{side.physical_share.value:>9.1%}"
            f"{side.split_share.value:>9.1%}{_percent(side.error):>18}"
        )
    yield f"  {'both':<14}{_plus_minus(test.together_w):>14}"
    yield ""
    yield from _residual(test, done)
    yield ""
    yield click.style(f"The split {_verdict_text(test.verdict)}", fg=_COLOURS[test.verdict]) + (
        ":" if test.why else f" within {test.threshold:.0%}."
    )
    yield from textwrap.wrap(test.why, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def to_json(test: PhysicalTest, done: Experiment) -> dict[str, Any]:
    """Schema `qjoule.physical/1`. Powers in W, shares and errors relative; unknown is null."""
    source, model = done.last.energy_source, done.last.model
    return {
        "schema": SCHEMA,
        "verdict": test.verdict.value,
        "why": test.why,
        "threshold": test.threshold,
        "rounds": test.rounds,
        "energy_source": {
            "name": source.name,
            "grade": source.grade,
            "main_domain": source.main_domain,
        },
        "model": {
            "weight": model.weight,
            "calibrated": model.calibrated,
            "coefficients": model.coefficients,
        },
        "loads": {
            name: {"statement": statement, **_side(side)}
            for (name, _), statement, side in zip(
                _LOADS, done.statements, (test.a, test.b), strict=True
            )
        },
        "together_w": _interval(test.together_w),
        "residual_w": _interval(test.residual_w),
        "rest_w": done.rest_w,
        "share_above_rest": _known(share_above_rest(test, done.rest_w)),
        "table_bytes": done.table_bytes,
        "cache_bytes": done.cache_bytes,
        "measured": [asdict(round_) for round_ in done.rounds],
    }


def _residual(test: PhysicalTest, done: Experiment) -> Iterator[str]:
    residual_w = test.residual_w.value
    part = residual_w / test.together_w.value if test.together_w.value > 0 else None
    drawn_once = f"{_plus_minus(test.residual_w)} W, {fmt.share(part)} of both"
    yield f"  R = A + B - both = {drawn_once}: drawn once"
    once_w = fmt.watts(max(residual_w - done.rest_w, 0.0))
    yield f"  at rest {fmt.watts(done.rest_w)} W, so {once_w} W come with the first busy core"
    share = share_above_rest(test, done.rest_w)
    yield f"  (subtracting the power at rest would say {_ratio(share)} of A and B)"
    if done.cache_bytes and done.table_bytes < 2 * done.cache_bytes:
        yield "  B's table is under twice the cache: it may not wait for memory"


def _side(side: Side) -> dict[str, Any]:
    return {
        "alone_w": _interval(side.alone_w),
        "adds_w": _interval(side.adds_w),
        "physical_share": _interval(side.physical_share),
        "split_share": _interval(side.split_share),
        "error": _interval(side.error),
        "rate_change": _known(side.rate_change),
    }


def _interval(estimate: Estimate) -> dict[str, float | None]:
    return {name: _known(value) for name, value in asdict(estimate).items()}


def _known(value: float) -> float | None:
    return value if fmt.is_known(value) else None


def _plus_minus(estimate: Estimate) -> str:
    return f"{fmt.watts(estimate.value)} ± {fmt.significant(_known(estimate.half), 2)}"


def _percent(estimate: Estimate) -> str:
    if not fmt.is_known(estimate.half) or estimate.half > _TOO_WIDE:
        return fmt.UNKNOWN
    return f"{estimate.value:+.1%} ± {estimate.half:.1%}"


def _ratio(share: float) -> str:
    return f"{share:.0%} : {1 - share:.0%}" if fmt.is_known(share) else fmt.UNKNOWN


def _verdict_text(verdict: Verdict) -> str:
    if verdict is Verdict.CANNOT_TELL:
        return "cannot be judged"
    return f"{verdict.value} {'with' if verdict is Verdict.AGREES else 'from'} the machine"
