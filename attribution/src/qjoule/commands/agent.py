# SPDX-License-Identifier: Apache-2.0
"""`qjoule agent`: the always-on service."""

from __future__ import annotations

from pathlib import Path

import click

from qjoule.agent.config import EXAMPLE, Config, load
from qjoule.agent.files import write_files
from qjoule.agent.notify import Manager
from qjoule.agent.small import keep_small
from qjoule.commands.agent_listeners import start_listeners
from qjoule.commands.keep_options import LEAST_S
from qjoule.commands.say import say
from qjoule.errors import UsageError
from qjoule.root_part.client import read_given, root_part


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
  sudo qjoule agent --recordings /var/lib/qjoule/recordings
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
    help="The flight recorder's directory (recordings.flight_s). What follows -- are its further "
    "options, as of `qjoule record`.",
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
@click.argument("record_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION...]")
def command(
    *,
    path: Path | None,
    pids: tuple[int, ...],
    recordings: Path | None,
    check: bool,
    example: bool,
    directory: Path | None,
    record_options: tuple[str, ...],
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
    _check_recordings(config, recordings, record_options)
    root_part().need("the agent")
    keep_small()
    manager = Manager.of_environment()
    listeners = start_listeners(config)
    from qjoule.commands.agent_run import run  # noqa: PLC0415 (the listening process stays small)

    return run(
        config, lambda: load(path, read_given), manager, listeners, recordings=recordings, pids=pids
    )


def _check_recordings(config: Config, directory: Path | None, options: tuple[str, ...]) -> None:
    """Raises `UsageError` for what could not be recorded."""
    flight_s = config.recordings.flight_s
    if (directory is not None) != bool(flight_s) or (options and directory is None):
        raise UsageError("recordings.flight_s and --recordings DIR need each other")
    if directory is None:
        return
    if not directory.is_absolute():
        raise UsageError("--recordings must be an absolute path")
    if flight_s < LEAST_S:
        raise UsageError(f"recordings.flight_s must be 0, or {LEAST_S:g} at least")
    if options[:1] and (not options[0].startswith("-") or "--" in options):
        raise UsageError("what follows -- must be options of `qjoule record`, and no program")
