# SPDX-License-Identifier: Apache-2.0
"""`qjoule learn`: repeats a trace's read-only statements to learn their power factors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import options, sanitise, say, shorten
from qjoule.api.traces import readable

if TYPE_CHECKING:
    from qjoule.api.attribution import LearnedFactors
    from qjoule.api.traces import Trace
    from qjoule_studies.read_only import Chosen, Statement
    from qjoule_studies.workload import Target, Value

_Z95 = 1.959963984540054
_MORE_S = 90.0  #: for the recorder to attach and to end
#: A statement runs alone for two thirds of its turn, and rests for one: see the workload `replay`.
_ALONE = 2 / 3
_MOST_SHAPES = 50
_LINE = 100


@click.command(
    short_help="Repeat a trace's statements to learn what each draws.",
    epilog="""\b
Examples:
  sudo qjoule learn mariadb --shapes shop.qjoule --statements shop.sql \\
      --database shop --user reader -o learned.qjoule
  sudo qjoule learn 1234 --shapes shop.qjoule --database shop --yes

\b
The password is taken from the variable QJOULE_PASSWORD. Statements that
write or lock, call a function that is not known to only read, or hold a
comment are refused. The others are shown whole; none runs before you agree.
Exit code 1: nothing was learned.
""",
)
@click.argument("server")
@click.option(
    "--shapes",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    metavar="TRACE",
    help="The trace whose statements are repeated.",
)
@click.option(
    "--statements",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Statements with their literals, one per line: a trace has none.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="learned.qjoule",
    show_default=True,
    metavar="DIR",
    help="The trace that is recorded.",
)
@options.seconds(10, 3600, 60.0, "How long the statements are repeated in all.")
@click.option(
    "--statement-seconds",
    type=click.FloatRange(0.1, 60),
    default=5.0,
    show_default=True,
    metavar="S",
    help="The server ends a statement after this.",
)
@options.more_than_before(
    "--more-statements",
    100_000,
    50.0,
    "Stop if others ask for so many more statements than at the start.",
)
@options.waiting("Stop")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="NAME",
    help="Where the server listens: on this machine.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="[default: the server's own]",
)
@click.option("--user", default="", metavar="NAME", help="Who reads: best one who may only read.")
@click.option(
    "--database", default="", metavar="NAME", help="The database that the statements are about."
)
@options.energy("As of 'qjoule record'.")
@options.calibration
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(
    *,
    server: str,
    shapes: Path,
    statements: Path | None,
    output: Path,
    seconds: float,
    statement_seconds: float,
    more_statements: float,
    waiting: float,
    host: str,
    port: int,
    user: str,
    database: str,
    energy: str,
    calibration: str | None,
    yes: bool,
) -> None:
    """Repeat a trace's read-only statements on SERVER, alone and together, while it is recorded.

    SERVER is a kind of server, such as mariadb, or the number of its process. The recorded trace
    shows what each statement draws when nothing else of them runs.
    """
    from qjoule.api.attribution import for_trace, known_factors  # noqa: PLC0415 (slow to import)
    from qjoule.api.traces import Trace  # noqa: PLC0415
    from qjoule_studies.client import Job  # noqa: PLC0415
    from qjoule_studies.plan import Recording, Running  # noqa: PLC0415
    from qjoule_studies.recording import recorded  # noqa: PLC0415
    from qjoule_studies.targets import running_target  # noqa: PLC0415

    if not database:
        raise UsageError("say which database the statements are about: --database")
    pid, flavour = (int(server), "") if server.isdecimal() else (0, server)
    wanted = Running(pid, flavour, host, port, user=user, database=database)
    trace = Trace(*readable([shapes]))
    target = running_target(wanted, to_record=True)
    chosen = _chosen(trace, target, statements)
    factors = known_factors(trace, for_trace(trace, calibration))
    plan = Plan(chosen.statements, seconds)
    for line in plan.lines(factors):
        click.echo(line)
    for why in _shown(chosen):
        say(why)
    if not yes:
        click.confirm(f"Repeat them on {target.flavour} (pid {target.pid})?", abort=True, err=True)
    work: dict[str, Value] = {
        "statements": json.dumps([statement.sql for statement in plan.statements]),
        "seconds": seconds,
        "statement_s": statement_seconds,
        "more_statements": more_statements,
        "waiting": waiting,
        "seed": 1,
    }
    run = recorded(Recording(energy=energy))
    report = run(Job("replay", target, work), target.pid, output, seconds + _MORE_S)
    for note in report.outcome.notes:
        say(note)
    say(f"{report.outcome.operations} statements, {report.outcome.errors} failed")
    learned = Trace(output)
    for line in plan.results(known_factors(learned, for_trace(learned, calibration))):
        click.echo(line)
    say(f"recorded in {output}")


@dataclass(frozen=True)
class Plan:
    """What is repeated, and for how long."""

    statements: Sequence[Statement]
    seconds: float

    @property
    def alone_s(self) -> float:
        """How long each statement runs alone: one turn of each, and one of all together."""
        return _ALONE * self.seconds / (len(self.statements) + 1)

    def lines(self, factors: LearnedFactors) -> Iterator[str]:
        """Lists each statement and how the 95 % interval of its power factor should narrow."""
        yield f"{len(self.statements)} statements, each alone for about {self.alone_s:.0f} s:"
        for statement in self.statements:
            narrowed = factors.narrowed(statement.fingerprint, self.alone_s)
            yield f"  {statement.fingerprint}  {sanitise(statement.sql)}"
            yield f"      power factor: {_precision(narrowed)}"

    def results(self, factors: LearnedFactors) -> Iterator[str]:
        """The power factor of each statement by the recorded trace, a line each."""
        for statement in self.statements:
            factor = factors.factor(statement.fingerprint)
            factor_text = (
                "not found" if factor is None else f"{factor[0]:.2f} ± {_Z95 * factor[1]:.2f}"
            )
            yield f"  {statement.fingerprint}  {factor_text}  {_line(statement.sql)}"


def _precision(sigmas: tuple[float, float] | None) -> str:
    if sigmas is None:
        return "the trace does not show it, so this is not known either"
    before, later = (_Z95 * sigma for sigma in sigmas)
    return f"now known to ± {before:.2f}, afterwards to about ± {later:.2f}"


def _line(sql: str) -> str:
    return shorten(sanitise(sql), _LINE)


def _chosen(trace: Trace, target: Target, statements: Path | None) -> Chosen:
    """The statements to repeat. Raises `QjouleError` if there are none."""
    from qjoule_studies.read_only import choose, read_statements  # noqa: PLC0415
    from qjoule_studies.reading import dialect_of, flavours  # noqa: PLC0415

    if target.flavour not in flavours():
        raise UsageError(f"learn knows {', '.join(sorted(flavours()))}, not {target.flavour}")
    lines = read_statements(statements) if statements is not None else []
    chosen = choose(_shapes(trace), lines, dialect_of(target))
    if not chosen.statements:
        for why in _shown(chosen):
            say(why)
        raise QjouleError("no statement can be repeated: give some with --statements")
    return chosen


def _shapes(trace: Trace) -> dict[str, str]:
    """Texts by fingerprint, those of the most queries first."""
    table = trace.table("shapes").select(["fingerprint", "text"]).to_pydict()
    texts = dict(zip(table["fingerprint"], table["text"], strict=True))
    calls = Counter(trace.table("queries").column("fingerprint").to_pylist())
    order = sorted((name for name in texts if name and texts[name]), key=lambda n: -calls[n])
    return {name: texts[name] for name in order[:_MOST_SHAPES]}


def _shown(chosen: Chosen) -> Iterator[str]:
    yield from (f"not repeated: {why}" for why in chosen.refused)
    if chosen.missing:
        listed = "; ".join(shorten(sanitise(text), 60) for text in chosen.missing[:5])
        yield f"{len(chosen.missing)} shapes of the trace have no statement: {listed}"
