# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench`: runs a study from its plan, or from a command line that makes a plan."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from qjoule.api.command import without_root
from qjoule_studies.commands import bench_options
from qjoule_studies.commands.bench_workload import WorkloadCommand
from qjoule_studies.plan_file import read_plan
from qjoule_studies.workloads import WORKLOADS

#: Commands on studies: name to the module here that holds its `command`.
COMMANDS = {"analyse": "bench_analyse", "proportionality": "bench_proportionality"}

_PLAN = "PLAN.toml"


class BenchGroup(click.Group):
    """Workloads and commands, loaded when they are used; any other word is a plan's file."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's interface)
        return [_PLAN, *WORKLOADS, *COMMANDS]

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name == _PLAN:
            return plan
        if cmd_name in WORKLOADS:
            return WorkloadCommand(cmd_name)
        if cmd_name in COMMANDS:
            module = importlib.import_module(f"{__package__}.{COMMANDS[cmd_name]}")
            command: click.Command = module.command
            return without_root(command)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in (*WORKLOADS, *COMMANDS):
            if Path(word).is_file() or word.endswith(".toml"):
                return _PLAN, plan, args
            names = ", ".join((*WORKLOADS, *COMMANDS))
            ctx.fail(f"there is no plan {word!r}, and no workload or command of that name: {names}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=BenchGroup,
    short_help="Designed experiments on a server.",
    subcommand_metavar="PLAN.toml|WORKLOAD|COMMAND [ARGS]...",
    epilog="""\b
Examples:
  sudo qjoule bench plan.toml -o study
  sudo qjoule bench ycsb --server redis -o study \\
      --factor workload=insert,read --factor threads=1,10 --until 5%
  sudo qjoule bench twitter --pid 812 --factor form=worse,better -o study
  qjoule bench ycsb --help

The plan's file is described in studies/README.md. A study that was interrupted
goes on when the same command is given again.
""",
)
def command() -> None:
    """Run a workload by a plan, many times; record each run, and make a table.

    PLAN.toml is a plan's file; WORKLOAD makes a plan of its options.
    """


@click.command(name=_PLAN, short_help="Run the study of a plan.")
@click.argument("file", type=click.Path(path_type=Path), metavar="PLAN.toml")
@bench_options.output
@bench_options.energy
@bench_options.without_energy
@bench_options.failed_again
def plan(
    *, file: Path, output: Path, energy: str | None, without_energy: bool, failed_again: bool
) -> int:
    """Run the study that PLAN.toml describes, or go on with it."""
    from qjoule_studies.commands.bench_run import run_plan  # noqa: PLC0415 (`qjoule --help` runs nothing)

    study_plan = bench_options.with_energy(read_plan(file), energy, without_energy=without_energy)
    return run_plan(study_plan, output, again=failed_again)
