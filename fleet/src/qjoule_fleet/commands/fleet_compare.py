# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet compare`: shows what a deploy changed, and which hosts are outliers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import say
from qjoule.api.comparison import Gate, Report, comparison, exit_code, judge, parse_gates
from qjoule.api.screen import writers
from qjoule_fleet.catalog import Catalog
from qjoule_fleet.commands import fleet_options
from qjoule_fleet.commands.fleet_options import FleetRequest
from qjoule_fleet.outliers import Class, compare, outliers, unmatched
from qjoule_fleet.questions import By
from qjoule_fleet.reader import Question, select
from qjoule_fleet.times import Range, duration_s, iso, moment
from qjoule_fleet.top import Read, Row, read, rows_of

SCHEMA = "qjoule.fleet-comparison/1"


@click.command(
    short_help="What a deploy changed; which hosts differ.",
    epilog="""\b
Examples:
  qjoule fleet compare /srv/fleet --at 2026-11-23T02:00
  qjoule fleet compare /srv/fleet --at 2026-11-23T02:00 --span 3h --gate 'J/call <= 1.05'
  qjoule fleet compare /srv/fleet --release 'mysql 10.11.6' 'mysql 11.4.2' --last 7d
  qjoule fleet compare /srv/fleet --hosts --last 24h

\b
Exit codes:
  0  compared; with --gate: every gate passes
  1  failed, or a gate has regressed: its interval lies beyond the limit
  2  usage
  3  with --gate: none has regressed, but some are not separable
""",
)
@fleet_options.argument
@click.option("--at", metavar="TIME", help="Compare the time after this moment with that before.")
@click.option(
    "--span",
    metavar="TIME",
    default="24h",
    show_default=True,
    help="With --at: so long on both sides; whole days have the same load.",
)
@click.option(
    "--release",
    "releases",
    nargs=2,
    metavar="A B",
    help="Compare release B of a server (`mysql 11.4.2`) with A, in the time range.",
)
@click.option(
    "--hosts", is_flag=True, help="Find hosts that differ from the others in the same shape."
)
@click.option(
    "--least",
    type=click.FloatRange(min=1.0, max=100.0),
    default=1.1,
    show_default=True,
    metavar="RATIO",
    help="With --hosts: the smallest ratio to the median host that is told.",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="'METRIC <= RATIO'",
    help="Hold every shape to this ratio of B over A; METRIC is J/call, latency, EDP or W. "
    "May be repeated.",
)
@click.option("--gate-total", is_flag=True, help="Hold all shapes together to the gates.")
@fleet_options.times
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@fleet_options.engines
@fleet_options.limits
def command(
    *,
    at: str | None,
    span: str,
    releases: tuple[str, str] | None,
    hosts: bool,
    least: float,
    gates: tuple[str, ...],
    gate_total: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Compare joules per call of each shape: two times, two releases, or the hosts.

    Each host is compared with itself where it can be, and the spread of the hosts' ratios is the
    interval. Measured and estimated joules are compared apart.
    """
    if (at is not None) + (releases is not None) + hosts != 1:
        raise UsageError("give one of --at TIME, --release A B, or --hosts")
    limits = parse_gates(gates)
    if gate_total and not limits:
        raise UsageError("--gate-total needs a --gate")
    if hosts:
        if limits:
            raise UsageError("--gate compares two sides: it is of --at and --release")
        return _hosts(fleet_options.parse_request(options), least, as_json=as_json)
    if at is not None:
        sides = _around_time(at, span, options)
    else:
        assert releases is not None
        sides = _two_releases(fleet_options.parse_request(options), releases)
    return _compare(sides, limits, total=gate_total, as_json=as_json)


@dataclass(frozen=True)
class _Sides:
    a: list[Row]
    b: list[Row]
    about: dict[str, str]  #: descriptions of A and B
    read: list[Read]


def _rows(request: FleetRequest, range_: Range, by: By) -> tuple[list[Row], Read]:
    parts = select(Catalog(request.reader.files), range_, by)
    read_parts = read(parts)
    fleet_options.print_refused(read_parts.refused)
    answer = request.reader.answer(parts, Question(by, limit=None, latency=False))
    if not answer.groups.num_rows:
        raise fleet_options.no_rows_error(request.reader, range_)
    fleet_options.print_missing(read_parts.missing, read_parts.silent)
    for note in parts.sums.notes:
        say(note)
    return rows_of(answer, by, {}), read_parts


_BY_HOST = By(("host", "fingerprint"))


def _around_time(at: str, span: str, options: dict[str, Any]) -> _Sides:
    if any(options[name] is not None for name in ("begin", "end", "last")):
        raise UsageError("--at has --span; --from, --to and --last are of the others")
    request = fleet_options.parse_request(options)
    notes: list[str] = []
    middle = int(moment(at, request.zone, end=False, notes=notes))
    length = duration_s(span)
    if middle >= time.time():
        raise UsageError(f"--at {at}: that is not over yet")
    if middle + length > time.time():
        notes.append(f"there are only {(time.time() - middle) / 3600:.1f} h after {iso(middle)}")
    for note in notes:
        say(note)
    before, after = Range(middle - length, middle), Range(middle, middle + length)
    a, read_a = _rows(request, before, _BY_HOST)
    b, read_b = _rows(request, after, _BY_HOST)
    return _Sides(a, b, {"A": str(before), "B": str(after)}, [read_a, read_b])


def _two_releases(request: FleetRequest, releases: tuple[str, str]) -> _Sides:
    rows, read_parts = _rows(request, request.range, By(("host", "fingerprint", "release")))
    sides = [[row for row in rows if row.keys["release"] == release] for release in releases]
    for name, side in zip(releases, sides, strict=True):
        if not side:
            names = sorted({row.keys["release"] for row in rows})[:20]
            raise QjouleError(f"no rows of release {name!r}; there are: {', '.join(names)}")
    about = {"A": f"{releases[0]}, {request.range}", "B": f"{releases[1]}, {request.range}"}
    return _Sides(sides[0], sides[1], about, [read_parts])


def _compare(sides: _Sides, limits: Sequence[Gate], *, total: bool, as_json: bool) -> int:
    classes = compare(sides.a, sides.b)
    if not classes:
        raise QjouleError("A and B have no shape in common that has the same grade and idle policy")
    alone = [
        f"only {side} has {grade or 'unknown'} joules with idle {policy or 'unknown'}"
        for side, grade, policy in unmatched(sides.a, sides.b)
    ]
    reports = [_report(class_, limits, sides, alone, total=total) for class_ in classes]
    if as_json:
        document = {
            "schema": SCHEMA,
            **sides.about,
            "classes": [comparison.document(report) for report in reports],
            "refused": [
                {"path": part.path, "reason": part.reason} for r in sides.read for part in r.refused
            ],
            "missing_hours": [
                {"host": host, "hour": iso(hour)} for r in sides.read for host, hour in r.missing
            ],
        }
        click.echo(writers.json_text(writers.finite(document)), nl=False)
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        pages = [comparison.render(report, color=color) for report in reports]
        click.echo("\n".join(pages), nl=False)
    return exit_code([result for report in reports for result in report.gates])


def _report(
    class_: Class, limits: Sequence[Gate], sides: _Sides, alone: list[str], *, total: bool
) -> Report:
    notes = [f"A: {sides.about['A']}", f"B: {sides.about['B']}", *alone]
    notes.append("runs are hosts: each host's joules per call over the whole time")
    if class_.left_out:
        named = ", ".join(class_.left_out[:10])
        more = f" and {len(class_.left_out) - 10:,} more" if len(class_.left_out) > 10 else ""
        notes.append(f"hosts with one side only are left out: {named}{more}")
    return Report(
        class_.sides,
        class_.a[0].made_with,
        class_.b[0].made_with,
        tuple(run.name for run in class_.a),
        tuple(run.name for run in class_.b),
        (),
        tuple(class_.alone_a),
        tuple(class_.alone_b),
        tuple(judge(limits, class_.sides, total=total)),
        total,
        tuple(notes),
    )


def _hosts(request: FleetRequest, least: float, *, as_json: bool) -> int:
    from qjoule_fleet.reporters import fleet_outliers  # noqa: PLC0415 (only here)

    rows, read_parts = _rows(request, request.range, _BY_HOST)
    result = outliers(rows, least)
    if as_json:
        click.echo(fleet_outliers.to_json(result, request.range, read_parts), nl=False)
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        click.echo(fleet_outliers.render(result, request.range, color=color), nl=False)
    return 0
