# SPDX-License-Identifier: Apache-2.0
"""How wrong the estimated power of a machine without counters is: leave-one-out over the tables.

    python studies/bench/bench_estimates.py [--save] [--csv]

Each published result is estimated as if it were not known, at each level of match
(`qjoule.machine.held_out`). Printed are, for each level: how many watts were held out, their median
and 95 % error, that error at each load, and how often an interval that was made without the
held-out CPU model holds. The last column is the error that estimates of that level carry. It
includes how far the packages that were measured by their own counters are from those that were
computed from a machine's wall.

`--save` writes `estimate_errors.csv`, which the product uses; a test compares it with these
figures. `--csv` prints the watts of every CPU model, how they were derived, and from where. Nothing
passes or fails here.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from qjoule.machine import held_out  # noqa: E402
from qjoule.machine.power_model import LEVELS, PackageFacts, estimate, shape  # noqa: E402
from qjoule.machine.power_table import dram_per_gb  # noqa: E402
from qjoule.machine.published import LOADS, published  # noqa: E402

SAVED = ROOT / "attribution/src/qjoule/machine/estimate_errors.csv"
TARGET = "120 CPU models from 2014 to 2025; intervals hold about 95 % of held-out watts"
_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# The relative 95 % error of estimated power by the level of its match, and a machine's rest over
# its packages.
# Written by studies/bench/bench_estimates.py --save from the tables beside it; a test compares.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--save", action="store_true", help="write estimate_errors.csv")
    parser.add_argument("--csv", action="store_true", help="print the watts of every CPU model")
    options = parser.parse_args()
    if options.csv:
        csv.writer(sys.stdout).writerows(models())
        return
    for line in report():
        print(line)
    if options.save:
        SAVED.write_text(_HEAD + "\n".join(saved_rows()) + "\n", encoding="utf-8")


def saved_rows() -> Iterator[str]:
    """The lines of ``estimate_errors.csv``."""
    yield "level,seen,error,at_rest,at_full"
    for error in held_out.errors():
        more = (
            ("", "") if error.at_rest is None else (f"{error.at_rest:.4f}", f"{error.at_full:.4f}")
        )
        yield ",".join((error.level, error.seen, f"{error.error:.4f}", *more))


def report() -> Iterator[str]:
    data = published()
    recent = [model for model in data.models.values() if 2014 <= model.year <= 2025]
    own = [model for model in recent if model.model in data.results]
    yield f"target: {TARGET}"
    yield (
        f"{len(recent)} CPU models from 2014 to 2025, {len(own)} of them with published watts; "
        f"{sum(map(len, data.results.values()))} results of {len(data.results)} models"
    )
    at_10, at_50 = shape()
    yield f"shape: {at_10:.2f} and {at_50:.2f} of the way from rest to full at 10 % and 50 % load"
    loads = "".join(f"{f'{load:.0%}':>8}" for load in LOADS)
    head = f"{'level':18}{'seen':7}{'watts':>6}{'median':>8}{'95 %':>8}"
    yield f"{head}{loads}{'holds':>8}{'error':>8}"
    for level in LEVELS:
        for place in ("host", "guest"):
            yield _level(level, guest=place == "guest")
    measured = held_out.measured_points()
    yield (
        f"packages by their own counters against wall results of their microarchitecture: "
        f"{len(measured)} watts, median {held_out.quantile(measured, 0.5):.0%}, "
        f"95 % {held_out.quantile(measured):.0%}; "
        f"so the derivation's error is {held_out.derivation_error():.0%}"
    )
    low, high = held_out.rest_over_package()
    yield (
        f"rest of the machine over its packages: {low:.2f} at rest, {high:.2f} at full load "
        f"({len(held_out.pairs())} pairs of machines), 95 % error {held_out.rest_error():.0%}"
    )
    watts, error = dram_per_gb()
    yield (
        f"DRAM, W per GB at those loads: {', '.join(f'{w:.2f}' for w in watts)}; "
        f"largest error of a published figure {error:.0%}"
    )


def _level(level: str, *, guest: bool) -> str:
    points = held_out.points(level, guest=guest)
    loads = "".join(
        f"{held_out.quantile([point for point in points if point.load_index == load_index]):8.0%}"
        for load_index in range(len(LOADS))
    )
    return (
        f"{level:18}{'guest' if guest else 'host':7}{len(points):6}"
        f"{held_out.quantile(points, 0.5):8.0%}{held_out.quantile(points):8.0%}{loads}"
        f"{held_out.coverage(level, guest=guest):8.1%}"
        f"{held_out.level_error(level, guest=guest):8.0%}"
    )


def models() -> Iterator[tuple[object, ...]]:
    """Every CPU model with the watts of its package, how they were derived, and from where."""
    yield (
        *("model", "microarchitecture", "year", "cores", "threads", "tdp_w"),
        *("w0", "w10", "w50", "w100", "derived", "results", "sources"),
    )
    data = published()
    for cpu in data.models.values():
        estimated = estimate(PackageFacts(cpu.model, cpu.architecture, "", cpu.threads, cpu.ghz))
        derived = "measured" if estimated.measured else "wall minus rest"
        if estimated.level != "model":
            derived = f"interpolated from its {estimated.level}"
        own = data.results.get(cpu.model, ())
        sources = "; ".join(
            f"{result.source}: {result.system}, {result.published}" for result in own
        )
        yield (
            *(cpu.model, cpu.architecture, cpu.year, cpu.cores, cpu.threads, cpu.tdp_w or ""),
            *(f"{w:.1f}" for w in estimated.curve),
            *(derived, estimated.results, sources),
        )


if __name__ == "__main__":
    main()
