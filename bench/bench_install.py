# SPDX-License-Identifier: Apache-2.0
"""Seconds from `pip install qjoule` to the first screen of `top`, in a clean root.

usage: make bench-install [BENCH_ARGS="--rounds N"]

pip takes all distributions from a directory, so the network has no part in it: add the time to
download 115 MB. The screen is `top -b -n 1`, beside a MariaDB that this program starts.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("tests/support", "tests")]

from nightly.packages.conftest import clean_root, fetch_wheels  # noqa: E402
from qjoule_studies.servers.mysql import mariadb_server  # noqa: E402


def seconds(wheels: Path, pid: int) -> tuple[float, float]:
    """Seconds to the end of `pip install`, and from there to the first screen."""
    with tempfile.TemporaryDirectory() as directory, clean_root(Path(directory)) as root:
        Path(directory).chmod(0o755)
        shutil.copytree(wheels, root.tree / "wheels")
        root.ran("python3.11", "-m", "venv", "/opt/qjoule")
        began = time.monotonic()
        offline = ("install", "--quiet", "--no-index", "--find-links", "/wheels")
        root.ran("/opt/qjoule/bin/pip", *offline, "qjoule")
        installed = time.monotonic()
        shown = root.ran("/opt/qjoule/bin/qjoule", "top", "-b", "-n", "1", "--pid", str(pid))
        assert "TOTAL" in shown, shown
        return installed - began, time.monotonic() - installed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    wheels = fetch_wheels()
    with mariadb_server() as server:
        times_s = [seconds(wheels, server.pid) for _ in range(rounds)]
    for name, values in zip(
        ("pip install", "first screen"), zip(*times_s, strict=True), strict=True
    ):
        print(
            f"{name:13} {statistics.median(values):6.1f} s "
            f"({min(values):.1f} to {max(values):.1f}, {rounds} rounds)"
        )
    print(f"{'both':13} {statistics.median(map(sum, times_s)):6.1f} s")


if __name__ == "__main__":
    main()
