# SPDX-License-Identifier: Apache-2.0
"""`qjoule report`: writes one self-contained page of traces and studies, and figures as files."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from qjoule.commands import options
from qjoule.commands.attribute_run import OF_ONE_TRACE, progress
from qjoule.commands.conversion import readable
from qjoule.commands.option_groups import ResultOptions, as_dataclass
from qjoule.errors import QjouleError, UsageError
from qjoule.machine.active_calibration import for_trace
from qjoule.process import OPENED, as_given
from qjoule.trace.reader import Trace

TOP = 2000  #: default of --top: rows of queries in the page
BY = "fingerprint,server,database"
RUNS = "runs.jsonl"  #: file in a study's directory, see `qjoule.report.build`


@click.command(
    short_help="A page of figures that opens offline.",
    epilog="""\b
Examples:
  qjoule report shop.qjoule -o report.html
  qjoule report before.qjoule after.qjoule -o both.html
  qjoule report shop.qjoule --by fingerprint,user --idle proportional
  qjoule report study/ -o study.html --figures figures/
""",
)
@click.argument(
    "directories", type=click.Path(path_type=Path), metavar="DIR...", nargs=-1, required=True
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="Write the page to this file.",
)
@click.option(
    "--by",
    default=BY,
    show_default=True,
    metavar="KEY[,KEY…]",
    help="Group queries by these keys, as `qjoule attribute --by` does.",
)
@options.idle
@options.calibration
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=TOP,
    show_default=True,
    metavar="N",
    help="Show N rows of queries; the others become one, with their sum.",
)
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write every figure there too: SVG and PNG, and its data as CSV, Parquet and JSON.",
)
@as_dataclass(ResultOptions, "result_options")
def command(
    directories: tuple[Path, ...],
    *,
    output: Path,
    top: int,
    figures: Path | None,
    result_options: ResultOptions,
) -> None:
    """Write one page: power over time, where the joules went, every statement.

    DIR is a trace, or the directory of a study. Several traces are compared with the first. The
    page needs no network, and holds no literals.
    """
    needs_extra()
    from threadpoolctl import (  # type: ignore[import-untyped]  # noqa: PLC0415 (extras)
        threadpool_limits,
    )

    from qjoule.report.build import Options, build  # noqa: PLC0415

    studies = [path for path in directories if (path / RUNS).is_file()]
    traces = [path for path in directories if path not in studies]
    if len(traces) > 1 and (local := [key for key in OF_ONE_TRACE if key in result_options.keys]):
        raise UsageError(f"{local[0]} is a number of one trace: leave it out, or give one trace")
    opened = [Trace(path) for path in readable(traces)]
    calibrated = [for_trace(trace, result_options.calibration) for trace in opened]
    # The model's many small products are slower on several threads.
    with (
        threadpool_limits(1, user_api="blas"),
        progress(sum(trace.rows("segments") for trace in opened)) as step,
    ):
        built = build(
            list(zip(opened, calibrated, strict=True)),
            studies,
            Options(result_options.keys, result_options.idle, top),
            step,
        )
    write(output, built.html)
    if figures:
        from qjoule.report.figures import write_figures  # noqa: PLC0415 (matplotlib)

        paths = write_figures(figures, built.traces, studies, built.data["comparisons"])
        click.echo(as_given(f"{figures}: {len(paths)} files"), err=True)
    size_mb = len(built.html.encode()) / 1e6
    click.echo(as_given(f"{output}: {size_mb:.2f} MB · {built.summary}"), err=True)


def needs_extra() -> None:
    """Raises `QjouleError` if the page's libraries are missing."""
    # matplotlib would warn in two lines if a user without a home has no cache.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import jinja2  # noqa: F401, PLC0415
        import matplotlib  # noqa: F401, PLC0415
        import threadpoolctl  # noqa: F401, PLC0415
    except ImportError as error:
        raise QjouleError(f"the page needs {error.name}: pip install 'qjoule[report]'") from error


def write(path: Path, text: str) -> None:
    """Writes the page atomically, or directly if `path` is not a regular file, such as a pipe."""
    from qjoule.trace.durable import write_whole  # noqa: PLC0415

    try:
        if path.parent == OPENED or (path.exists() and not path.is_file()):
            path.write_bytes(text.encode())
        else:
            write_whole(path, text.encode(), durable=False)
    except OSError as error:
        raise QjouleError(f"cannot write {path}: {error.strerror}") from error
