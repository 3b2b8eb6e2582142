# SPDX-License-Identifier: Apache-2.0
"""The report of a busy hour: time, memory, page size, and how fast a browser shows it.

    python bench/bench_report.py [--quick] [--keep DIR]

Generates a trace of one hour at 1,400 queries per second (5 million queries of 500 statements on
two servers), has `qjoule report` make its page, and opens that in headless Chromium if it is
installed. Prints each target beside the figure. Nothing passes or fails here. Other programs on the
machine lengthen the wall time, so the command's CPU time is printed too.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from bench import report_trace  # noqa: E402
from bench.command import machine, machine_lines  # noqa: E402

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@dataclass(frozen=True)
class Made:
    """The cost of making the page."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    page_mb: float
    without_data_kb: float


def make(trace: Path, page: Path) -> Made:
    """Runs the command in a separate process."""
    program = [sys.executable, "-m", "qjoule", "report", str(trace), "-o", str(page)]
    begin = time.monotonic()
    child = subprocess.Popen(program)
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.monotonic() - begin
    if status:
        raise SystemExit(f"qjoule report ended with {os.waitstatus_to_exitcode(status)}")
    text = page.read_text()
    data = _DATA.search(text)
    size, of_data = len(text.encode()), len(data[1].encode()) if data else 0
    return Made(
        wall_s,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        size / 1e6,
        (size - of_data) / 1e3,
    )


def shown_ms(page: Path, times: int = 3) -> list[int] | None:
    """Time from navigation until the page was ready for input, per run; None without a browser."""
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver_path):
        return None
    from selenium import webdriver  # noqa: PLC0415
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for option in (*OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        try:
            times_ms = []
            for _ in range(times):
                driver.get(page.as_uri())
                ready = "return document.documentElement.dataset.readyMs"
                times_ms.append(int(driver.execute_script(ready)))
            return times_ms
        finally:
            driver.quit()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one minute instead of an hour")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep trace and page here")
    options = parser.parse_args()
    print("\n".join(machine_lines(machine())))
    load = report_trace.Load(seconds=60.0 if options.quick else 3600.0)
    with tempfile.TemporaryDirectory() as temporary:
        where = options.keep or Path(temporary)
        trace = report_trace.write(where / "hour.qjoule", load)
        print(f"{load.queries:,} queries of {load.shapes} statements in {load.seconds:g} s")
        report = make(trace, where / "hour.html")
        ready = shown_ms((where / "hour.html").absolute())
    rows = [
        ("page built, CPU time", "30 s", f"{report.cpu_s:.1f} s"),
        ("page built, wall time", "30 s", f"{report.wall_s:.1f} s"),
        ("peak memory", "1000 MB", f"{report.peak_mb:.0f} MB"),
        ("size of the page", "5 MB", f"{report.page_mb:.2f} MB"),
        ("size without its data", "700 kB", f"{report.without_data_kb:.0f} kB"),
        ("ready in a browser", "2000 ms", _milliseconds(ready)),
    ]
    print(f"{'':24} {'target below':>14} {'measured':>20}")
    for name, target, figure in rows:
        print(f"{name:24} {target:>14} {figure:>20}")
    print("\n".join(machine_lines(machine())))
    return 0


def _milliseconds(ready: list[int] | None) -> str:
    return "no browser here" if ready is None else ", ".join(map(str, ready)) + " ms"


if __name__ == "__main__":
    sys.exit(main())
