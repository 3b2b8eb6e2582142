# SPDX-License-Identifier: Apache-2.0
"""Records one test with `qjoule record`, and compares the joules per call that `qjoule attribute`
reports with the test's budget."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

#: The tag that a test's calls carry.
TAG = "energy_test"
ATTACH_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.02
_TRACING = "qjoule: tracing"  #: printed by `qjoule record` once every probe is in place


@dataclass(frozen=True)
class Verdict:
    """`words`: the reason. `figures`: values for test reports; joules per call are None if no call
    was seen or there is no energy source."""

    status: Literal["kept", "exceeded", "not separable"]
    words: str
    figures: dict[str, Any] = field(default_factory=dict)


def judge(document: dict[str, Any], value: str, budget_j: float) -> Verdict:
    """Compares joules per call with the budget, for the test whose calls carry `TAG` = `value`.

    Only tagged calls count. If no call is tagged (the driver has no shim, or runs in another
    process), all calls to the recorded servers in that time count, and `words` says so.

    Args:
        document: `qjoule.attribution/1`, grouped by the tag.
        budget_j: joules per call.
    """
    rows = document["rows"]
    tagged = [row for row in rows if row[f"tag:{TAG}"] == value and row["calls"]]
    counted = tagged or [row for row in rows if row["calls"]]
    others = sum(row["calls"] for row in rows) - sum(row["calls"] for row in counted)
    how = "by tag" if tagged else "by time span: also what others called meanwhile"
    if others:
        how += f", {others:,} calls of others not counted"
    source, policy = document["energy_source"], document["policy"]
    grade = f"energy {source['grade']}, idle {policy['idle']}"
    figures = _figures(counted)
    about = {
        "budget_j_per_call": budget_j,
        "grade": source["grade"],
        "idle_policy": policy["idle"],
        "counted": "tag" if tagged else "span",
        **figures,
    }
    loss = document["trace"]["loss"]
    lost = f"; lost: {', '.join(f'{cause} {n}' for cause, n in loss.items())}" if loss else ""
    if not figures["calls"]:
        return Verdict("not separable", f"no call of it was seen ({grade}{lost})", about)
    if figures["j_per_call"] is None:
        return Verdict("not separable", f"its joules are unknown ({grade}{lost})", about)
    low, high = figures["j_per_call_low95"], figures["j_per_call_high95"]
    words = (
        f"{figures['j_per_call']:.3g} J/call ({low:.3g} to {high:.3g} at 95 %) over "
        f"{figures['calls']:,} calls ({how}), budget {budget_j:g} J/call; {grade}{lost}"
    )
    if low > budget_j:
        return Verdict("exceeded", words, about)
    return Verdict("kept" if high <= budget_j else "not separable", words, about)


def _figures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Calls, and J per call with its interval, of all rows together. The rows' errors are fully
    correlated, so the ends of their intervals add up."""
    calls = sum(row["calls"] for row in rows)
    names = ("j_per_call", "j_per_call_low95", "j_per_call_high95")
    if not calls or any(row["energy_j"] is None for row in rows):
        return {"calls": calls, **dict.fromkeys(names)}
    energies = [(row["energy_j"], *row["energy_j_ci95"]) for row in rows]
    sums = [sum(column) / calls for column in zip(*energies, strict=True)]
    return {"calls": calls, **dict(zip(names, sums, strict=True))}


class CannotRecord(Exception):
    """Nothing can be recorded on this machine; the message gives the reason on one line."""


class EnergyRecording:
    """A running recording. The context manager stops the recorder and removes its files."""

    def __init__(self, *options: str) -> None:
        """`options` of `qjoule record`. Raises `CannotRecord`."""
        self._program = _program()
        self._folder = Path(tempfile.mkdtemp(prefix="qjoule-energy-"))
        self._log = (self._folder / "log").open("w+b")
        self._trace = self._folder / "trace"
        command = [self._program, "record", "-o", str(self._trace), *options]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log
        )
        try:
            self._wait_attached()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EnergyRecording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def document(self, by: str) -> dict[str, Any]:
        """Ends the recording and returns its attribution as JSON, grouped by the key `by`.

        Raises `CannotRecord` if the recorder failed or made no trace.
        """
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise CannotRecord("qjoule record did not end in time") from None
        if code != 0:
            raise CannotRecord(f"qjoule record failed: {self._last_message()}")
        # --absolute adds the error of the total, because a budget is in joules.
        options = ["--by", by, "--format", "json", "--absolute"]
        completed = subprocess.run(
            [self._program, "attribute", str(self._trace), *options],
            capture_output=True,
            check=False,
        )
        if completed.returncode != 0:
            raise CannotRecord(f"qjoule attribute failed: {_last_line(completed.stderr)}")
        document: dict[str, Any] = json.loads(completed.stdout)
        return document

    def close(self) -> None:
        """Kills the recorder if it still runs, and removes its files."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_attached(self) -> None:
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        while _TRACING not in self._log_text():
            if self._process.poll() is not None:
                raise CannotRecord(f"qjoule record failed: {self._last_message()}")
            if time.monotonic() > deadline:
                raise CannotRecord("qjoule record did not attach in time")
            time.sleep(_POLL_S)

    def _log_text(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def _last_message(self) -> str:
        return _last_line(self._log_text().encode())


def _program() -> str:
    if sys.platform != "linux":
        raise CannotRecord("recording needs Linux")
    if os.geteuid() != 0:
        raise CannotRecord("recording needs root: run pytest with sudo")
    beside = Path(sys.executable).with_name("qjoule")
    program = str(beside) if beside.exists() else shutil.which("qjoule")
    if program is None:
        raise CannotRecord("the command qjoule is not installed")
    return program


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
