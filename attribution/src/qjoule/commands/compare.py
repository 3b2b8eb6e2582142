"""`qjoule compare`: speedup, greenup and powerup of one recording over another."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from qjoule.errors import QjouleError, UsageError
from qjoule.model.attribute import attribute
from qjoule.model.gpsup import Comparison, Form, Interval, compare, match
from qjoule.reporters import format as fmt
from qjoule.reporters.json_report import forms, forms_from_json
from qjoule.trace.reader import Trace

SCHEMA = "qjoule.comparison/1"


@click.command(
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
    "pairs",
    multiple=True,
    metavar="FP_A=FP_B",
    help="Compare this statement of A with that of B; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(base: Path, new: Path, pairs: tuple[str, ...], as_json: bool) -> None:
    """Compare the statements of B with those of A: traces, or JSON written by `attribute`.

    Above 1, B is faster (speedup), needs less energy (greenup), or draws more power (powerup).
    """
    old, old_grade = load_forms(base)
    later, new_grade = (old, old_grade) if new == base else load_forms(new)
    try:
        matched = match(old, later, [_pair(text) for text in pairs])
    except KeyError as error:
        raise QjouleError(f"no statement has fingerprint {error.args[0]}: see attribute") from error
    if not matched:
        raise QjouleError("A and B have no statement in common: name some with --pair FP_A=FP_B")
    found = [compare(a, b) for a, b in matched]
    if as_json:
        click.echo(to_json(found, old_grade, new_grade), nl=False)
    else:
        click.echo(render(found, old_grade, new_grade), nl=False)


def load_forms(path: Path) -> tuple[list[Form], str]:
    """Query forms and the grade of a trace or of an attribution's JSON."""
    if path.is_dir():
        result = attribute(Trace(path))
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
    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("speedup", "greenup", "95 %", "powerup"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("category", no_wrap=True)
    table.add_column("statement", overflow="ellipsis", no_wrap=True)
    for one in found:
        statement = one.base.shape or one.base.name
        if one.new.name != one.base.name:
            statement += f"  →  {one.new.shape or one.new.name}"
        table.add_row(
            _figure(one.speedup),
            _figure(one.greenup),
            _ends(one.greenup_ci95),
            _figure(one.powerup),
            one.category,
            Text(fmt.one_line(statement)),
        )
    console = Console(color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    grades = f"energy: {base_grade} (A), {new_grade} (B); apportioned\n"
    return captured.get() + grades


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}"


def _ends(interval: Interval | None) -> str:
    return "—" if interval is None else f"{interval[0]:.2g}…{interval[1]:.2g}"
