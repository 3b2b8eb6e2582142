# SPDX-License-Identifier: Apache-2.0
"""`qjoule run`: runs an unchanged application with the driver shims."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import subprocess
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType

import click

from qjoule.commands.say import say
from qjoule.errors import QjouleError, exit_code


@click.command(
    short_help="Run an application that tags its queries.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  qjoule run -- gunicorn shop:app
  qjoule run --tag release=1.4 --tag job=nightly -- python report.py
  sudo qjoule record -d 60, and then: qjoule attribute DIR --by tag:endpoint
""",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="KEY=VALUE",
    help="Tags every query of the program; may be repeated.",
)
@click.option(
    "--in-statements",
    metavar="KEY,...",
    default="",
    help="Also put these tags into the statements (SQL comments and the like), for servers on "
    "other hosts. Name keys that have few values. [default: none]",
)
@click.option(
    "--in-connections",
    metavar="KEY,...",
    default="",
    help="Also have connections tell these tags to their servers when they are opened: what holds "
    "for the whole program. [default: none]",
)
@click.option(
    "--from-baggage",
    metavar="KEY,...",
    default="",
    help="Make these entries of OpenTelemetry's baggage tags. [default: none]",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not say which drivers were wrapped.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def command(*, tags: tuple[str, ...], quiet: bool, program: tuple[str, ...], **keys: str) -> int:
    """Run CMD with shims for pymysql, pymongo, cassandra-driver, psycopg and redis-py.

    Python programs that CMD starts have them too. Needs no root: the recorder does, and the
    program finds it, whichever of the two is started first.
    """
    tag_values = dict(_pair(tag) for tag in tags)
    package = importlib.util.find_spec("qjoule_drivers")
    if package is None:
        raise QjouleError("the shims are not installed: pip install qjoule-drivers")
    from qjoule_drivers.inject import environment  # noqa: PLC0415 (an extra)

    with tempfile.TemporaryDirectory(prefix="qjoule-run-") as folder:
        # A program that drops its rights must still be able to write its report. Others cannot list
        # the folder, so they do not know the name.
        Path(folder).chmod(0o711)
        report = Path(folder, secrets.token_hex(16))
        report.touch()
        report.chmod(0o666)
        code = _run(program, environment(dict(os.environ), tag_values, report=str(report), **keys))
        lines = report.read_text("utf-8", "replace").splitlines()
    if not quiet:
        for line in _summary(lines):
            say(line)
    return code


def _pair(tag: str) -> tuple[str, str]:
    key, is_pair, value = tag.partition("=")
    if not is_pair or not key.strip() or "," in tag:
        raise click.UsageError(f"--tag {tag!r}: expected KEY=VALUE, without commas")
    return key.strip(), value


def _run(program: tuple[str, ...], environment: dict[str, str]) -> int:
    """Runs the program. Forwards signals and its exit code."""
    try:
        child = subprocess.Popen(program, env=environment)
    except OSError as error:
        raise QjouleError(f"cannot start {program[0]}: {error.strerror}") from None

    def forward(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            child.send_signal(number)

    # A terminal sends Ctrl-C to the program, too, which decides how to handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    return exit_code(child.wait())


def _summary(lines: list[str]) -> list[str]:
    """Summarises the processes' reports: each is `PID text`."""
    counts = Counter(text for _, _, text in (line.partition(" ") for line in lines))
    if not counts:
        return [
            "no driver was wrapped: none of pymysql, pymongo, cassandra-driver, psycopg and "
            "redis-py was imported by a Python that honours PYTHONPATH"
        ]
    return [
        text if count == 1 else f"{text} (in {count} processes)"
        for text, count in sorted(counts.items())
    ]
