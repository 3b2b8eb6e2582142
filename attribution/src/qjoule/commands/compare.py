# SPDX-License-Identifier: Apache-2.0
"""`qjoule compare`: what recordings of B gain over those of A, and gates for CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from qjoule.commands import compared_runs, options
from qjoule.errors import QjouleError, UsageError
from qjoule.model.compared import compare_sides
from qjoule.model.gate import exit_code, judge, parse_gates
from qjoule.model.gpsup import match
from qjoule.reporters import comparison
from qjoule.reporters.comparison import Report

#: Replaces `--vs` among the paths; no argument of a program can contain a NUL.
_VS = "\0vs"


class _Side(click.Path):
    """A path, or `--vs`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == _VS else super().convert(value, param, ctx)


class _TwoSides(click.Command):
    """Makes `--vs` divide the paths, regardless of options between them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        marked = [_VS if arg == "--vs" else arg for arg in args[:end]]
        return super().parse_args(ctx, marked + args[end:])


@click.command(
    cls=_TwoSides,
    short_help="What recordings of one side save over another's.",
    epilog="""\b
Examples:
  qjoule compare before.qjoule after.qjoule
  qjoule compare before.json after.json --json
  qjoule compare shop.qjoule shop.qjoule --pair 5e1d…=91ab…
  qjoule compare a1 a2 a3 a4 a5 --vs b1 b2 b3 b4 b5
  qjoule compare a* --vs b* --gate 'J/call <= 1.05' --junit out.xml

\b
Exit codes:
  0  compared; with --gate: every gate passes
  1  failed, or a gate has regressed: its interval lies beyond the limit
  2  usage
  3  with --gate: none has regressed, but some are not separable: the interval
     reaches both sides of the limit, or the spread between runs is not known
""",
)
@click.argument("paths", type=_Side(readable=False), metavar="A… [--vs] B…", nargs=-1)
@click.option(
    "--vs",
    is_flag=True,
    expose_value=False,
    help="What stands before are runs of A, what follows are runs of B.",
)
@click.option(
    "--pair",
    "pairs",
    multiple=True,
    metavar="FP_A=FP_B",
    help="Compare this statement of A with that of B; may be repeated.",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="'METRIC <= RATIO'",
    help="Hold every statement to this ratio of B over A; METRIC is J/call, latency, EDP "
    "(energy-delay product) or W (power while it runs). May be repeated.",
)
@click.option(
    "--gate-total",
    is_flag=True,
    help="Hold all statements together to the gates, in A's mix of calls, not each by itself.",
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the gates' results as JUnit XML.",
)
@click.option(
    "--across",
    is_flag=True,
    help="Also compare runs of different grades, idle policies, energy sources, machines or "
    "calibrations; every output says so.",
)
@options.idle
@options.calibration
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    paths: tuple[str, ...],
    pairs: tuple[str, ...],
    gates: tuple[str, ...],
    gate_total: bool,
    junit: Path | None,
    across: bool,
    idle: str,
    calibration: str | None,
    as_json: bool,
) -> int:
    """Compare the statements of B with those of A: traces, or JSON written by `attribute`.

    Above 1, B is faster (speedup), needs less energy (greenup), or draws more power (powerup).
    With several runs on each side, intervals are of the spread between runs.
    """
    side_a, side_b = _sides(paths)
    limits = parse_gates(gates)
    if not limits and (junit or gate_total):
        raise UsageError(f"{'--junit' if junit else '--gate-total'} needs a --gate")
    a = compared_runs.load_runs(side_a, calibration, idle)
    b = a if side_b == side_a else compared_runs.load_runs(side_b, calibration, idle)
    differing = compared_runs.check(a, b, across=across)
    old, new = compared_runs.statements(a), compared_runs.statements(b)
    try:
        matched = match(old, new, [_pair(text) for text in pairs])
    except KeyError as error:
        raise QjouleError(f"no statement has fingerprint {error.args[0]}: see attribute") from error
    if not matched:
        raise QjouleError("A and B have no statement in common: name some with --pair FP_A=FP_B")
    sides = compare_sides(a, b, matched)
    names_a, names_b = {old.name for old, _ in matched}, {new.name for _, new in matched}
    report = Report(
        sides,
        a[0].made_with,
        b[0].made_with,
        tuple(run.name for run in a),
        tuple(run.name for run in b),
        tuple(differing),
        () if pairs else tuple(form for form in old if form.name not in names_a),
        () if pairs else tuple(form for form in new if form.name not in names_b),
        tuple(judge(limits, sides, total=gate_total)),
        gate_total,
        tuple(compared_runs.notes(a, b)),
    )
    _write(report, junit, as_json=as_json)
    return exit_code(report.gates)


def _sides(paths: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Divides the paths into those of A and those of B."""
    divisions = [i for i, path in enumerate(paths) if path == _VS]
    if not divisions and len(paths) == 2:
        return [Path(paths[0])], [Path(paths[1])]
    if len(divisions) != 1 or not 0 < divisions[0] < len(paths) - 1:
        raise UsageError("give two runs, A and B, or several of each: A1 A2 A3 --vs B1 B2 B3")
    before, after = paths[: divisions[0]], paths[divisions[0] + 1 :]
    return [Path(path) for path in before], [Path(path) for path in after]


def _pair(text: str) -> tuple[str, str]:
    a, equals, b = text.partition("=")
    if not (a and equals and b):
        raise UsageError(f"--pair {text}: give two fingerprints as FP_A=FP_B")
    return a, b


def _write(report: Report, junit: Path | None, *, as_json: bool) -> None:
    if junit is not None:
        from qjoule.reporters.junit import to_junit  # noqa: PLC0415

        try:
            junit.write_bytes(to_junit(report))
        except OSError as error:
            raise QjouleError(f"cannot write {junit}: {error.strerror}") from error
    if as_json:
        click.echo(comparison.to_json(report), nl=False)
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        click.echo(comparison.render(report, color=color), nl=False)
