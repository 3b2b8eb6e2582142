"""How true attributed joules are, beside other methods, where the truth is known.

    python bench/bench_accuracy.py [--seeds N] [--scenarios A,B] [--methods A,B] [--jobs N]
                                   [--trace DIR] [--record] [--skip-power] [--json FILE]

Machines, servers and their clients are drawn by seed; a simulated machine runs them by published
physics and shows what a real one would: energy counters, segments, hardware counters. Every method
attributes that, and is compared with what each query shape caused. A second part fits the power of
a real server that others have recorded. Nothing passes or fails here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# Small matrices: threads of the algebra library would only wait for each other.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from bench.accuracy import report  # noqa: E402
from bench.accuracy.harness import METHODS, CaseResult, Wanted, run_all  # noqa: E402
from bench.accuracy.scenarios import SCENARIOS  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"scenarios: {', '.join(SCENARIOS)}; methods: {', '.join(METHODS)}",
    )
    parser.add_argument("--seeds", type=int, default=200, help="of each scenario [%(default)s]")
    parser.add_argument("--scenarios", type=_names, default=list(SCENARIOS), metavar="A,B")
    parser.add_argument("--methods", type=_names, default=list(METHODS), metavar="A,B")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="[%(default)s]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures, by case")
    chosen = parser.parse_args()
    for kind, known in (("scenarios", list(SCENARIOS)), ("methods", list(METHODS))):
        if unknown := [name for name in getattr(chosen, kind) if name not in known]:
            parser.error(f"no such {kind}: {', '.join(unknown)}")
    if chosen.seeds < 1 or chosen.jobs < 1:
        parser.error("--seeds and --jobs must be positive")
    return chosen


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def counted(results: Iterable[CaseResult], total: int) -> Iterator[CaseResult]:
    """`results`, with a line of progress on stderr once a second."""
    begin = last = time.monotonic()
    for number, result in enumerate(results, 1):
        now = time.monotonic()
        if now - last > 1 or number == total:
            left_s = (now - begin) / number * (total - number)
            print(f"\r{number} of {total} cases, {left_s:.0f} s left ", end="", file=sys.stderr)
            last = now
        yield result
    print(file=sys.stderr)


def main() -> int:
    chosen = arguments()
    wanted = Wanted(tuple(name for name in METHODS if name in chosen.methods))
    total = chosen.seeds * len(chosen.scenarios)
    results = run_all(chosen.scenarios, range(chosen.seeds), wanted, chosen.jobs)
    document: dict[str, Any] = {}
    try:
        summary = report.Summary(counted(results, total))
    except KeyboardInterrupt:
        print("\nbench_accuracy: interrupted", file=sys.stderr)
        return 130
    width = shutil.get_terminal_size((100, 24)).columns
    print("\n".join(report.render(summary, width)))
    document["simulated"] = report.document(summary)
    if chosen.json:
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
