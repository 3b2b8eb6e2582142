# SPDX-License-Identifier: Apache-2.0
"""How accurate joules are on energy counters that others recorded, beside other tools' rules.

    python studies/bench/bench_real.py DIR

DIR holds the sources' tables (studies/bench/real/README.md says where they are from, and what is
missing in them). Nothing is copied from it. Nothing passes or fails here. Exits with 2 if there is
nothing in DIR that it can read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

# The matrices are small: threads of the algebra library would only wait for each other.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from studies.bench.real import rome, xeon  # noqa: E402
from studies.bench.real.pairs import pairs_of, platform_of  # noqa: E402
from studies.bench.real.scores import joint_table, platform_line, score, shares_table  # noqa: E402

from qjoule.errors import QjouleError  # noqa: E402

WHERE = """\
make bench-real DATA=DIR: DIR must hold tables of real energy counters that others measured:
  xeon-e5-2683v4-runs.csv, xeon-e5-2683v4-series.csv.gz
      github.com/dcslab-snu/experiment-data at 4fbe98b5
  rome-epyc-7502-phases.tsv.gz
      github.com/tud-zih-energy/2021-rome-ee at ee736c39
studies/bench/real/README.md describes their columns."""
BUSY = {
    False: "CPU time as cycles at the machine's frequency",
    True: "CPU time of every core that a program holds",
}


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0]) if len(arguments) == 1 and arguments[0] else None
    if directory is None or not directory.is_dir():
        print(WHERE, file=sys.stderr)
        return 2
    if directory.resolve().is_relative_to(ROOT):
        print(f"{directory}: data of others must not lie in this tree", file=sys.stderr)
        return 2
    parts = {xeon.RUNS: _pairs, rome.PHASES: _rome}
    present = [part for name, part in parts.items() if (directory / name).exists()]
    if not present:
        print(WHERE, file=sys.stderr)
        return 2
    if not _has_terms(directory):
        print(f"{directory} has no README or LICENSE: do not pass its data on\n")
    try:
        for part in present:
            for line in part(directory):
                print(line, flush=True)
    except QjouleError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _has_terms(directory: Path) -> bool:
    """Whether a file states the source and the licence of the data."""
    return any(
        path.name.upper().startswith(("README", "LICENSE", "LICENCE", "COPYING"))
        for path in directory.iterdir()
    )


def _pairs(directory: Path) -> Iterator[str]:
    runs = xeon.read(directory)
    pairs = list(pairs_of(runs))
    yield f"Two programs on one socket of 2 x Xeon E5-2683 v4: {len(pairs)} pairs"
    yield from (f"  left out: {name}: {why}" for name, why in runs.left_out)
    if not pairs:
        return
    platform = platform_of(runs)
    yield platform_line(pairs, platform)
    for held, title in BUSY.items():
        splits, predictions = score(pairs, replace(platform, held=held), [*runs.solo.values()])
        yield f"\n{title}:\n"
        yield from shares_table(splits)
        yield ""
        yield from joint_table(predictions)
    yield ""


def _rome(directory: Path) -> Iterator[str]:
    yield from rome.table(rome.read(directory))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
