# SPDX-License-Identifier: Apache-2.0
"""Recomputes each source's results from its own numbers, and prints where the two differ.

PYTHONPATH=studies/examples .venv/bin/python -m published [gps-up-twitter|factorial-nosql|...]
"""

from __future__ import annotations

import sys

from published import counters, factorial, gps_up, operators, proportionality

STUDIES = {
    module.STUDY: module for module in (gps_up, factorial, operators, proportionality, counters)
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        print(f"no study '{unknown[0]}': use {', '.join(STUDIES)}", file=sys.stderr)
        return 2
    for name in names or STUDIES:
        module = STUDIES[name]
        print(f"{name}\n")
        if hasattr(module, "recomputed"):
            print(module.recomputed().to_string(index=False, na_rep="", float_format="%.5g"), "\n")
        for found in module.misprints():
            print(f"{found.place}: {found.what}: printed {found.printed}, is {found.recomputed}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
