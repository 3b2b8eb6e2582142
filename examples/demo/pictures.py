# SPDX-License-Identifier: Apache-2.0
"""The pictures of the README, from a recording of the demo: `make pictures`.

`top.svg` is the screen of `qjoule top --replay`, read from a real terminal (tmux). `report.png` is
the page of `qjoule report` in a browser (Chromium).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

QJOULE = str(Path(sys.executable).parent / "qjoule")
WIDTH, HEIGHT = 128, 26
PAGE_WIDTH_PX, PAGE_HEIGHT_PX = 1200, 1000
PATIENCE_S = 60.0


def top(trace: Path, picture: Path) -> None:
    """Writes the screen of the live view as SVG, in the middle of the recording."""
    with tempfile.TemporaryDirectory() as directory:
        tmux = ["tmux", "-S", f"{directory}/socket", "-f", "/dev/null", "-u"]
        view = [QJOULE, "top", "--replay", str(trace), "-d", "5", "--speed", "8"]
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        environment = {**os.environ, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        subprocess.run([*tmux, "new-session", "-d", *size, *view], env=environment, check=True)
        try:
            screen, deadline = "", time.monotonic() + PATIENCE_S
            while "at 20.0 s" not in screen and "END OF TRACE" not in screen:
                if time.monotonic() > deadline:
                    raise SystemExit(f"pictures: the live view shows no recording:\n{screen}")
                time.sleep(0.05)
                capture = [*tmux, "capture-pane", "-p", "-e"]
                screen = subprocess.run(capture, capture_output=True, text=True, check=True).stdout
        finally:
            subprocess.run([*tmux, "kill-server"], check=False)
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(screen.rstrip()), soft_wrap=True)
        console.save_svg(str(picture), title="sudo qjoule top")


def report(trace: Path, picture: Path) -> None:
    """Writes the beginning of the report's page as PNG."""
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "report.html"
        subprocess.run([QJOULE, "report", str(trace), "-o", str(page)], check=True)
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        browser += ["--disable-background-networking", "--disable-component-update"]
        browser += [f"--user-data-dir={directory}/profile", "--virtual-time-budget=5000"]
        browser += [f"--window-size={PAGE_WIDTH_PX},{PAGE_HEIGHT_PX}", f"--screenshot={picture}"]
        subprocess.run([*browser, page.as_uri()], check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="The pictures of the README.")
    parser.add_argument("trace", type=Path, help="a recording of demo.py --keep")
    parser.add_argument("pictures", type=Path, help="the directory for top.svg and report.png")
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    top(options.trace, options.pictures / "top.svg")
    report(options.trace, options.pictures / "report.png")


if __name__ == "__main__":
    main()
