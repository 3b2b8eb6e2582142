# SPDX-License-Identifier: Apache-2.0
"""How well `qjoule compare` decides: coverage of intervals, false alarms, and changes it finds.

    python studies/bench/bench_compare.py [--repetitions N] [--record N] [--json FILE]

Simulated runs of five statements have a known truth, a spread between runs, and a model error that
all runs share. The first table compares intervals of the ratio of two means: the share that
contains the true ratio. The second counts claims of a difference: between equal workloads, where
each is wrong, and against one that needs 10 % more, where each is right. `--record` makes N runs a
side on a real Redis, alternating: equal runs, and runs whose script loops 10 % more. Nothing passes
or fails here.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench import command  # noqa: E402

from qjoule.commands.compared_runs import load_runs  # noqa: E402
from qjoule.model.arrays import F64  # noqa: E402
from qjoule.model.compared import Sides  # noqa: E402
from qjoule.model.gate import Gate, exit_code, judge  # noqa: E402
from qjoule.model.repeated import RunForms  # noqa: E402
from qjoule.model.run_ratios import log_ratios  # noqa: E402
from qjoule_studies.servers.redis import redis_server  # noqa: E402
from simulated_runs import Workload, compared, mispricing, says_different  # noqa: E402
from tracing.recording import recording  # noqa: E402

NAME = "bench_compare"
SEED = 20260101
SPREADS = (0.02, 0.05)
TAILS = ("normal", "skewed")
RUNS = (2, 3, 5, 10, 30)
RESAMPLES = 599
SCRIPT = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i % 7 end return n"
LOOPS, CALLS = 40_000, 4_000

Interval = Callable[[F64, F64, np.random.Generator], tuple[F64, F64]]


def welch(a: F64, b: F64, _rng: np.random.Generator) -> tuple[F64, F64]:
    """The interval that `compare` uses. Like the others here, returns the ends of the log of the
    ratio.
    """
    low, high = log_ratios(np.exp(a), np.exp(b)).interval()
    return np.log(low), np.log(high)


def scipy_bootstrap(method: str) -> Interval:
    """Percentile or BCa bootstrap from scipy."""

    def interval(a: F64, b: F64, rng: np.random.Generator) -> tuple[F64, F64]:
        with warnings.catch_warnings():  # BCa of two runs is degenerate
            warnings.simplefilter("ignore")
            interval = stats.bootstrap(
                (a, b),
                lambda x, y, axis: y.mean(axis=axis) - x.mean(axis=axis),
                n_resamples=RESAMPLES,
                batch=50,
                axis=-1,
                method=method,
                random_state=rng,
            ).confidence_interval
        return interval.low, interval.high

    return interval


def studentised(a: F64, b: F64, rng: np.random.Generator) -> tuple[F64, F64]:
    """Bootstrap-t (Efron and Tibshirani, An Introduction to the Bootstrap, 12.5)."""
    difference, error = _difference(a[:, None, :], b[:, None, :])
    x = rng.integers(0, a.shape[1], (RESAMPLES, a.shape[1]))
    y = rng.integers(0, b.shape[1], (RESAMPLES, b.shape[1]))
    resampled, error_again = _difference(a[:, x], b[:, y])
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (resampled - difference) / error_again
    t = np.where(np.isnan(t), 0.0, np.clip(t, -1e9, 1e9))
    low, high = np.percentile(t, [2.5, 97.5], axis=1)
    return (difference[:, 0] - high * error[:, 0], difference[:, 0] - low * error[:, 0])


def _difference(a: F64, b: F64) -> tuple[F64, F64]:
    error = np.sqrt(a.var(-1, ddof=1) / a.shape[-1] + b.var(-1, ddof=1) / b.shape[-1])
    return b.mean(-1) - a.mean(-1), error


METHODS: dict[str, Interval] = {
    "Welch": welch,
    "percentile": scipy_bootstrap("percentile"),
    "BCa": scipy_bootstrap("BCa"),
    "bootstrap-t": studentised,
}


def coverage(repetitions: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """For each tail and number of runs: the share of intervals that contain the true ratio."""
    rows = []
    for tail in TAILS:
        for runs in RUNS:
            say(f"coverage, {tail}, {runs} runs")
            rng = np.random.default_rng([SEED, runs, len(tail)])
            a, b = (_draw_noise(rng, tail, (repetitions, runs)) for _ in "ab")
            row: dict[str, Any] = {"tail": tail, "runs": runs}
            for name, interval in METHODS.items():
                low, high = interval(a, b, rng)
                row[name] = float(((low <= 0) & (high >= 0)).mean())
            rows.append(row)
    return rows


def _draw_noise(rng: np.random.Generator, tail: str, shape: tuple[int, int]) -> F64:
    noise = rng.normal(0, 1, shape) if tail == "normal" else rng.exponential(1, shape) - 1
    scaled: F64 = 0.05 * noise
    return scaled


def verdicts(repetitions: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """How often `compare` claims a change, in all statements, for each spread, tail and number of
    runs.

    Counted are equal workloads called different or regressed against `J/call <= 1`, and detections
    of 10 % more.
    """
    rows = []
    for spread in SPREADS:
        for tail in TAILS:
            for runs in (3, 10, 30):
                say(f"verdicts, {spread:.0%} {tail}, {runs} runs")
                workload = Workload(spread=spread, tail=tail)
                rng = np.random.default_rng([SEED, runs, len(tail), round(1000 * spread)])
                counts = {"wrong": 0, "wrongly regressed": 0, "found": 0, "regressed": 0}
                for _ in range(repetitions):
                    equal, more = (_sides(workload, rng, runs, factor) for factor in (1.0, 1.1))
                    counts["wrong"] += says_different(equal)
                    counts["wrongly regressed"] += _regressed(equal, 1.0)
                    counts["found"] += all(row.category.startswith("red") for row in more.rows)
                    counts["regressed"] += _regressed(more, 1.05)
                shares = {name: count / repetitions for name, count in counts.items()}
                rows.append({"spread": spread, "tail": tail, "runs": runs, **shares})
    return rows


def _sides(workload: Workload, rng: np.random.Generator, runs: int, factor: float) -> Sides:
    wrong = mispricing(rng)
    a = workload.runs(rng, runs, mispriced=wrong)
    return compared(a, workload.runs(rng, runs, mispriced=wrong, factor=factor, side="b"))


def _regressed(sides: Sides, limit: float) -> bool:
    return exit_code(judge([Gate("J/call", limit)], sides)) == 1


def real(runs: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Runs of a script on its own Redis, alternating: A and B alike, and C with 10 % more loops."""
    runs_by_side: dict[str, list[RunForms]] = {"A": [], "B": [], "C": []}
    with redis_server() as server, command.shared_directory() as folder:
        for number in range(runs):
            for side in runs_by_side:
                say(f"recording {side}{number + 1} of {runs}")
                loops = round(LOOPS * (1.1 if side == "C" else 1.0))
                trace = folder / f"{side}{number}"
                with (
                    recording(trace, "--energy", "auto", "--pid", str(server.pid)),
                    server.connect() as client,
                ):
                    for _ in range(CALLS):
                        client.eval(SCRIPT, 0, loops)
                runs_by_side[side] += load_runs([trace])
    rows = []
    for name, side in (("equal (A and B)", "B"), ("10 % more loops (A and C)", "C")):
        a, b = (_scripts(runs_by_side[key]) for key in ("A", side))
        sides = compared(a, b)
        (row,) = sides.rows
        gate = judge([Gate("J/call", 1.05)], sides)[0]
        rows.append(
            {
                "what": name,
                "runs": runs,
                "grade": a[0].made_with.grade,
                "j_per_call": row.base.j_per_call,
                "ratio": gate.ratio,
                "ratio_ci95": gate.ci95,
                "category": row.category,
                "gate J/call <= 1.05": gate.status,
            }
        )
    return rows


def _scripts(runs: list[RunForms]) -> list[RunForms]:
    """Only the script's calls: a client also sends HELLO."""
    for run in runs:
        run.forms[:] = [form for form in run.forms if form.calls >= CALLS]
    return runs


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text, one column for each key."""
    cells = [list(rows[0]), *([_cell(key, row[key]) for key in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(t.rjust(w) for t, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(lines)


def _cell(key: str, value: Any) -> str:
    if isinstance(value, tuple):
        return "…".join(f"{end:.3f}" for end in value)
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if key in ("ratio", "j_per_call") else f"{value:.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000, help="of each case [%(default)s]")
    parser.add_argument("--record", type=int, default=0, metavar="N", help="runs a side [none]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    options = parser.parse_args()
    say = command.progress_to(sys.stderr, NAME)
    document: dict[str, Any] = {"machine": command.machine()}

    def bench() -> None:
        if options.record:
            document["real"] = real(options.record, say)

    if options.repetitions > 0:
        document["coverage"] = coverage(options.repetitions, say)
        document["verdicts"] = verdicts(options.repetitions, say)
    code = command.run(NAME, bench) if options.record else 0
    say("")
    print("\n".join(command.machine_lines(document["machine"])))
    for name, title in (
        ("coverage", "share of 95 % intervals with the true ratio; spread 5 %"),
        ("verdicts", "equal workloads called different; 10 % more found in all five statements"),
        ("real", "Redis, on this machine"),
    ):
        if name in document:
            print(f"\n{title}\n{table(document[name])}")
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
