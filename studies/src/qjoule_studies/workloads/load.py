# SPDX-License-Identifier: Apache-2.0
"""`load`: a level of load, or a load over time, that arrives whether the server is ready or not.

First the peak is measured: a closed loop on all connections. Then a percentage of it arrives by a
schedule that is fixed beforehand (open loop), so that a slow server cannot slow its load. After
T. Härder, WattDB: a rocky road to energy proportionality in databases, and L. A. Barroso,
U. Hölzle, The case for energy-proportional computing, IEEE Computer 40(12), 2007.

The peak is measured once, when the first run that needs it is prepared, and kept in the server, in
the table or hash `qjoule_load_peaks`: so all runs of a study use percentages of one peak. Its name
there includes everything it depends on; another `peak_name` measures a new peak.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qjoule.api import QjouleError, UsageError
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads import option_values
from qjoule_studies.workloads.load_clients import (
    FLAVOURS,
    RANGE_ROWS,
    Client,
    open_client,
    prepare_database,
)
from qjoule_studies.workloads.load_process import COMMANDS, Peak, Share, in_processes
from qjoule_studies.workloads.load_profile import (
    MOST_PER_S,
    MOST_PERCENT,
    Offered,
    Profile,
    outcome,
    read_profile,
)
from qjoule_studies.workloads.open_loop import KINDS, Sent, arrivals_s

_MIXES = {  # shares of COMMANDS
    "read": (1.0, 0.0, 0.0),
    "update": (0.0, 1.0, 0.0),
    "mix": (0.80, 0.15, 0.05),
}
_MOST_ARRIVALS = 50_000_000
_KEYS_OF_A_PEAK = 100_000
_BUSY = 0.7  # of its processes' cores: a client that needs more may be what limits the peak


class Load:
    """An open loop on SQL servers and Redis.

    Options:
        operation: `read` and `update` of one row by its key, or `mix`: 80 % reads, 15 % updates,
            5 % ranges of 100 rows.
        level: percent of the peak, 0 (idle) to 1000. seconds: for how long.
        profile: a CSV file (`qjoule_studies.workloads.load_profile`) in place of `level` and
            `seconds`; empty for none.
        arrival: `poisson`, or `uniform` for equal distances.
        peak_per_s: the peak, if it is known; 0 has it measured for `peak_seconds`.
        connections: of the peak and the load. processes: of the client; 0 for one each core.
        queue: how many operations may wait for a connection; who arrives when they do is an error.
        rows: of the table. seed: of arrivals and keys.
    """

    name = "load"
    flavours = FLAVOURS
    defaults: Mapping[str, Value] = {
        "operation": "read",
        "level": 50.0,
        "seconds": 30.0,
        "profile": "",
        "arrival": "poisson",
        "peak_per_s": 0.0,
        "peak_seconds": 10.0,
        "peak_name": "peak",
        "connections": 16,
        "processes": 0,
        "queue": 10_000,
        "rows": 100_000,
        "seed": 1,
    }

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        """Makes the rows; measures the peak, unless it is given, kept, or not needed."""
        parsed = _Parsed(options)
        prepare_database(target)
        with closing(open_client(target, parsed.rows)) as client:
            client.fill(parsed.rows)
            if parsed.needs_peak and client.recall(parsed.peak_key) is None:
                client.remember(parsed.peak_key, _measured_peak(target, parsed))

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        parsed = _Parsed(options)
        with closing(open_client(target, parsed.rows)) as client:
            peak_per_s, notes = _known_peak(parsed, client)
        per_s = parsed.profile.per_s(peak_per_s)
        expected = sum(per_s) * parsed.profile.step_s
        if expected > _MOST_ARRIVALS:
            raise UsageError(f"{expected:,.0f} operations are too many: {_MOST_ARRIVALS:,} at most")
        rng = np.random.default_rng([parsed.seed, 1])
        arrivals = arrivals_s(per_s, parsed.profile.step_s, parsed.arrival, rng)
        keys, commands = parsed.drawn(rng, len(arrivals))
        arrivals_ns = np.round(arrivals * 1e9).astype(np.int64)
        sent = in_processes(
            [
                parsed.share(
                    target, place, keys, commands, arrivals_ns, seconds=parsed.profile.seconds
                )
                for place in range(parsed.processes)
            ]
        )
        results = [
            (each, commands[place :: parsed.processes])
            for place, each in enumerate(sent)
            if isinstance(each, Sent)
        ]
        offered = Offered(parsed.profile.seconds, peak_per_s, notes)
        return outcome(results, COMMANDS, offered)


class _Parsed:
    """The options, checked, and what follows from them."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        options = option_values.only_known(Load.name, values, Load.defaults)
        self.operation = option_values.choice(options, "operation", _MIXES)
        self.arrival = option_values.choice(options, "arrival", KINDS)
        level = option_values.number(options, "level", 0, MOST_PERCENT)
        seconds = option_values.number(options, "seconds", 0.01, 7 * 86_400)
        self.peak_per_s = option_values.number(options, "peak_per_s", 0, MOST_PER_S)
        self.peak_seconds = option_values.number(options, "peak_seconds", 0.1, 3_600)
        self.connections = option_values.integer(options, "connections", 1, 10_000)
        processes = option_values.integer(options, "processes", 0, 256)
        cores = len(os.sched_getaffinity(0))
        self.processes = min(processes or cores, self.connections)
        self.queue = option_values.integer(options, "queue", 1, 10_000_000)
        self.rows = option_values.integer(options, "rows", RANGE_ROWS, 100_000_000)
        self.seed = option_values.integer(options, "seed", 0, 2**31 - 1)
        file = option_values.text(options, "profile")
        self.profile = read_profile(Path(file)) if file else Profile(seconds, (level,), "percent")
        in_percent = self.profile.unit == "percent"
        self.needs_peak = in_percent and any(self.profile.levels) and not self.peak_per_s
        name = option_values.text(options, "peak_name")
        if not 0 < len(name) <= 60:
            raise UsageError("peak_name has 1 to 60 characters")
        of_peak = (self.operation, self.rows, self.connections, self.processes, self.peak_seconds)
        self.peak_key = "|".join(map(str, (name, *of_peak)))

    def drawn(
        self, rng: np.random.Generator, count: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
        """Keys and commands of so many operations."""
        keys = rng.integers(1, self.rows - RANGE_ROWS + 2, count)
        commands = rng.choice(len(COMMANDS), count, p=_MIXES[self.operation]).astype(np.int8)
        return keys, commands

    def share(
        self,
        target: Target,
        place: int,
        keys: npt.NDArray[np.int64],
        commands: npt.NDArray[np.int8],
        arrivals_ns: npt.NDArray[np.int64] | None,
        *,
        seconds: float,
    ) -> Share:
        """The share of the process at this place: every n-th operation, for n processes."""
        own = slice(place, None, self.processes)
        return Share(
            target,
            self.rows,
            len(range(self.connections)[own]),
            keys[own],
            commands[own],
            None if arrivals_ns is None else arrivals_ns[own],
            seconds,
            max(1, self.queue // self.processes),
        )


def _measured_peak(target: Target, parsed: _Parsed) -> dict[str, Value]:
    keys, commands = parsed.drawn(np.random.default_rng([parsed.seed, 0]), _KEYS_OF_A_PEAK)
    places = range(parsed.processes)
    shares = [
        parsed.share(target, place, keys, commands, None, seconds=parsed.peak_seconds)
        for place in places
    ]
    peaks = [peak for peak in in_processes(shares) if isinstance(peak, Peak)]
    per_s = sum(peak.per_s for peak in peaks)
    if not per_s:
        raise QjouleError("the peak cannot be measured: no operation ended in peak_seconds")
    return {
        "per_s": per_s,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "client_cpu": sum(peak.client_cpu for peak in peaks),
    }


def _known_peak(parsed: _Parsed, client: Client) -> tuple[float, tuple[str, ...]]:
    """The peak in operations per second, and notes about it; 0 if none is needed."""
    if parsed.peak_per_s:
        return parsed.peak_per_s, (f"the peak was given: {parsed.peak_per_s:,.6g}/s",)
    peak = client.recall(parsed.peak_key)
    if peak is None:
        if parsed.needs_peak:
            raise QjouleError("the peak has not been measured: prepare the workload first")
        return 0.0, ()
    cores = float(peak["client_cpu"])
    notes = [
        f"the peak was measured at {peak['when']}: {peak['per_s']:,.6g}/s, "
        f"for which the client used {cores:.1f} cores"
    ]
    if cores > _BUSY * parsed.processes:
        notes.append(
            f"the client's {parsed.processes} processes were busy at the peak: it may be theirs "
            "and not the server's; give more processes, on cores that the server does not need"
        )
    return float(peak["per_s"]), tuple(notes)
