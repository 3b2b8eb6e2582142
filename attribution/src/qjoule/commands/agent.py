# SPDX-License-Identifier: Apache-2.0
"""`qjoule agent`: the always-on service."""

from __future__ import annotations

from pathlib import Path

import click

from qjoule.agent.config import EXAMPLE, load, write_files
from qjoule.agent.notify import Manager
from qjoule.commands.agent_listeners import start_listeners
from qjoule.commands.say import say
from qjoule.errors import UsageError
from qjoule.process import limit_memory
from qjoule.root_part.client import check_program, read_given, root_part


@click.command(
    short_help="Watch always: metrics for Prometheus, rollups per minute.",
    epilog="""\b
Signals: SIGHUP reads the configuration again, SIGTERM and Ctrl-C end it.

\b
Examples:
  qjoule agent --example > agent.toml
  qjoule agent --config agent.toml --check
  sudo qjoule agent --config agent.toml
  curl http://127.0.0.1:9779/metrics
  qjoule agent --files /tmp/qjoule
  qjoule agent --recordings /r -- env -C /r qjoule record --keep 60s
""",
)
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration (TOML).",
)
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="PID",
    help="Only this server; any process may be named. Repeatable.",
)
@click.option(
    "--recordings",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The flight recorder's directory. What follows -- starts it: a `qjoule record --keep`.",
)
@click.option("--check", is_flag=True, help="Only check the configuration.")
@click.option("--example", is_flag=True, help="Print a configuration with every key.")
@click.option(
    "--files",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Write the service for systemd, Prometheus rules and Grafana dashboards.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
def command(
    *,
    path: Path | None,
    pids: tuple[int, ...],
    recordings: Path | None,
    check: bool,
    example: bool,
    directory: Path | None,
    program: tuple[str, ...],
) -> int:
    """Trace this machine's servers for as long as it runs, as a service does.

    Serves metrics on a loopback address and keeps rollups per minute.
    """
    if example:
        click.echo(EXAMPLE.read_text(encoding="utf-8"), nl=False)
        return 0
    if directory is not None:
        for file in write_files(directory):
            click.echo(file)
        return 0
    path = None if path is None else path.absolute()
    config = load(path, read_given)
    if check:
        say(f"{path or 'the default configuration'}: ok")
        return 0
    _check_recordings(recordings, program)
    root_part().need("the agent")
    limit_memory()
    manager = Manager.of_environment()
    listeners = start_listeners(config)
    from qjoule.commands.agent_run import run  # noqa: PLC0415 (the listening process stays small)

    return run(
        config, lambda: load(path, read_given), manager, listeners, recordings=recordings, pids=pids
    )


def _check_recordings(directory: Path | None, program: tuple[str, ...]) -> None:
    """Raises `UsageError` if the options for recordings do not fit together."""
    check_program(program)
    if (directory is not None) != bool(program):
        raise UsageError("--recordings DIR and -- CMD need each other")
    if directory is not None and not directory.is_absolute():
        raise UsageError("--recordings must be an absolute path")
