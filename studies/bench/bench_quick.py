# SPDX-License-Identifier: Apache-2.0
"""How accurate joules are with `calibrate --quick` beside a running load, on simulated machines.

    python studies/bench/bench_quick.py [--seeds N] [--scenarios A,B] [--foreign SHARE]
                                        [--seconds S] [--no-tables] [--json FILE]

Each case is attributed four times: uncalibrated, with a full calibration of the idle machine, with
a quick one beside a foreign load, and with a quick one that refines the full one. Scenarios and
errors are those of `bench_accuracy.py`; "family/scenario" names one of a family. Nothing passes or
fails here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

import numpy as np  # noqa: E402
from studies.bench.accuracy.engine_run import attribute, calibrated  # noqa: E402
from studies.bench.accuracy.outcomes import own_outcome  # noqa: E402
from studies.bench.accuracy.quick_run import own_groups, quick_calibrate  # noqa: E402
from studies.bench.accuracy.recording import Case  # noqa: E402
from studies.bench.accuracy.scenarios import make_case  # noqa: E402

from qjoule.model.coefficients import Coefficients  # noqa: E402
from qjoule.model.fit.known_loads import MachineInUse  # noqa: E402

DEFAULT = ("equal_time_unequal_power", "short_bursts", "noisy_neighbours", "smt_both_busy")
Row = dict[str, float | int | str]


def coefficients(case: Case, quick: Case) -> dict[str, Coefficients]:
    """Coefficients by name of the method."""
    assert quick.calibration is not None
    own, full = own_groups(quick.calibration), calibrated(case)
    return {
        "uncalibrated": Coefficients(),
        "full": full,
        "quick": calibrated(quick, MachineInUse(own)),
        "both": calibrated(quick, MachineInUse(own, full)),
    }


def without_table(case: Case) -> Case:
    """The case on a kernel that shows no idle states."""
    assert case.calibration is not None
    recording, calibration = (
        replace(recording, idle_states=()) for recording in (case.recording, case.calibration)
    )
    return replace(case, recording=recording, calibration=calibration)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    calibrator = partial(quick_calibrate, foreign=options.foreign, seconds=options.seconds)
    for seed in range(options.seeds):
        for scenario in options.scenarios.split(","):
            case = make_case(scenario, seed)
            quick = make_case(scenario, seed, calibrator)
            if not options.tables:
                case, quick = without_table(case), without_table(quick)
            for name, coefficients_used in coefficients(case, quick).items():
                ledger = attribute(case.recording, coefficients_used, refit=True)
                outcome = own_outcome(case, name, ledger, hashlib.sha256())
                yield {
                    "scenario": scenario,
                    "seed": seed,
                    "method": name,
                    "error": outcome.errors["package"],
                    "intervals": outcome.intervals["package"],
                    "covered": outcome.covered["package"],
                    "half_width": float(np.median(outcome.widths["package"])),
                }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="of each scenario [%(default)s]")
    parser.add_argument("--scenarios", default=",".join(DEFAULT), metavar="A,B")
    parser.add_argument("--foreign", type=float, default=0.3, help="busy share [%(default)s]")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a run [%(default)s]")
    parser.add_argument(
        "--tables",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the kernel shows its idle states [yes]",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, by case")
    options = parser.parse_args()
    try:
        results = list(rows(options))
    except KeyError as error:
        parser.error(f"no such scenario or family: {error}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    for name in dict.fromkeys(str(row["method"]) for row in results):
        of_method = [row for row in results if row["method"] == name]
        errors = [float(row["error"]) for row in of_method]
        covered = sum(int(row["covered"]) for row in of_method) / sum(
            int(r["intervals"]) for r in of_method
        )
        width = float(np.median([float(row["half_width"]) for row in of_method]))
        print(
            f"{name:<13} error: mean {np.mean(errors):6.2%}, worst {max(errors):6.2%}; "
            f"intervals hold {covered:6.1%}, half width {width:6.2%}; {len(of_method)} cases"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
