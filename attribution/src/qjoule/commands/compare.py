"""`qjoule compare`: speedup, greenup and powerup of one recording over another."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from qjoule.commands import options
from qjoule.errors import QjouleError, UsageError
from qjoule.machine.in_force import for_trace
from qjoule.model.attribute import attribute
from qjoule.model.coefficients import TOTAL_ERROR
from qjoule.model.gpsup import Comparison, Form, compare, match
from qjoule.model.same_total import without_total_error
from qjoule.reporters import pairs
from qjoule.reporters.json_report import forms, forms_from_json
from qjoule.reporters.pairs import NamedPair
from qjoule.trace.reader import Trace

SCHEMA = "qjoule.comparison/1"


@click.command(
    short_help="What one recording saves over another.",
    epilog="""\b
Examples:
  qjoule compare before.qjoule after.qjoule
  qjoule compare before.json after.json --json
  qjoule compare shop.qjoule shop.qjoule --pair 5e1d…=91ab…
""",
)
@click.argument("base", type=click.Path(path_type=Path), metavar="A")
@click.argument("new", type=click.Path(path_type=Path), metavar="B")
@click.option(
    "--pair",
    "asked",
    multiple=True,
    metavar="FP_A=FP_B",
    help="Compare this statement of A with that of B; may be repeated.",
)
@options.calibration
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    base: Path, new: Path, asked: tuple[str, ...], calibration: str | None, as_json: bool
) -> None:
    """Compare the statements of B with those of A: traces, or JSON written by `attribute`.

    Above 1, B is faster (speedup), needs less energy (greenup), or draws more power (powerup).
    """
    old, old_grade = load_forms(base, calibration)
    if new == base:
        # Both forms' joules are shares of one total: its error is in both, and not in their ratio.
        old = [without_total_error(form, TOTAL_ERROR.get(old_grade, 0.0)) for form in old]
    later, new_grade = (old, old_grade) if new == base else load_forms(new, calibration)
    try:
        matched = match(old, later, [_pair(text) for text in asked])
    except KeyError as error:
        raise QjouleError(f"no statement has fingerprint {error.args[0]}: see attribute") from error
    if not matched:
        raise QjouleError("A and B have no statement in common: name some with --pair FP_A=FP_B")
    found = [compare(a, b) for a, b in matched]
    if as_json:
        click.echo(to_json(found, old_grade, new_grade), nl=False)
    else:
        click.echo(render(found, old_grade, new_grade), nl=False)


def load_forms(path: Path, calibration: str | None = None) -> tuple[list[Form], str]:
    """Query forms and the grade of a trace or of an attribution's JSON.

    `calibration`: as the option says it; of a JSON everything is decided already.
    """
    if path.is_dir():
        trace = Trace(path)
        result = attribute(trace, calibrated=for_trace(trace, calibration))
        return forms(result), result.energy_source.grade
    try:
        return forms_from_json(path.read_bytes(), str(path))
    except OSError as error:
        raise QjouleError(f"cannot read {path}: {error.strerror}") from error


def _pair(text: str) -> tuple[str, str]:
    a, equals, b = text.partition("=")
    if not (a and equals and b):
        raise UsageError(f"--pair {text}: give two fingerprints as FP_A=FP_B")
    return a, b


def to_json(found: list[Comparison], base_grade: str, new_grade: str) -> str:
    """Comparisons as JSON; an unbounded end of an interval is null."""
    rows = [_finite(asdict(one)) for one in found]
    document = {"schema": SCHEMA, "grade": {"base": base_grade, "new": new_grade}, "rows": rows}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def render(found: list[Comparison], base_grade: str, new_grade: str) -> str:
    """Comparisons as a table that fits the terminal."""
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    named = [NamedPair(_statement(one), "B", "A", one) for one in found]
    grade = f"{base_grade} (A), {new_grade} (B)"
    return pairs.render(named, grade, heading="statement", new="B", color=color)


def _statement(one: Comparison) -> str:
    statement = one.base.shape or one.base.name
    if one.new.name == one.base.name:
        return statement
    return f"{statement}  →  {one.new.shape or one.new.name}"
