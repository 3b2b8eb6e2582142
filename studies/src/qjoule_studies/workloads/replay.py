# SPDX-License-Identifier: Apache-2.0
"""`replay`: repeats read-only statements, each alone and all together, for `qjoule learn`.

Every session is read-only and has a time limit for each statement. The run ends early when others
ask the server for more than they did at the start, or when threads wait for a CPU.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from qjoule.api import UsageError
from qjoule.api.servers import Guard, Limits, LoadRose, load_reader
from qjoule_studies.read_only import why_not
from qjoule_studies.reading import Session, dialect_of, flavours, open_session
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads.closed_loop import latencies_of

_SLICE_S = 0.5  #: a statement runs alone for so long at a time, and rests for half of it
_BEGIN_S = 2.0
_MOST_TOGETHER = 4
ALL = "all together"


class Replay:
    """Repeats statements on the servers that have read-only sessions.

    Options:
        statements: a list of texts, as JSON. seconds: for how long in all.
        statement_s: after this the server ends a statement.
        more_statements: by how many per cent the others' statements per second may grow.
        waiting: threads that may wait for a CPU, more than at the start.
        seed: of the order.
    """

    name = "replay"
    flavours = flavours()
    defaults: Mapping[str, Value] = {
        "statements": "[]",
        "seconds": 60.0,
        "statement_s": 5.0,
        "more_statements": 50.0,
        "waiting": 2.0,
        "seed": 1,
    }

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        """Needs nothing: what it reads is the user's."""

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        chosen = {**self.defaults, **options}
        statements = _statements(str(chosen["statements"]), target)
        limit_s = float(chosen["statement_s"])

        def open_one() -> Session:
            return open_session(target, limit_s)

        with closing(open_one()) as session:
            run = _Run(statements, open_one, session, chosen)
            return run.outcome()


def _statements(text: str, target: Target) -> list[str]:
    """Checks them again: the client trusts nobody's list."""
    from qjoule.api.servers import registry  # noqa: PLC0415

    statements = json.loads(text)
    if (
        not isinstance(statements, list)
        or not statements
        or not all(isinstance(statement, str) for statement in statements)
    ):
        raise UsageError("replay needs a list of statements")
    dialect = registry.dialect(dialect_of(target))
    for sql in statements:
        if why := why_not(sql, dialect):
            raise UsageError(f"a statement may not be repeated: {why}")
    return statements


class _Run:
    def __init__(
        self,
        statements: Sequence[str],
        open_one: Callable[[], Session],
        session: Session,
        options: Mapping[str, Any],
    ) -> None:
        self._statements, self._open, self._session = statements, open_one, session
        self._seconds = float(options["seconds"])
        self._growth = 1.0 + float(options["more_statements"]) / 100.0
        self._order = random.Random(int(options["seed"]))
        self._guard = Guard(
            Limits(float("inf"), float(options["waiting"])), load_reader(lambda: ())
        )
        self._times_ns: dict[str, list[int]] = {}
        self._errors, self._own, self._lock = 0, 0, threading.Lock()

    def outcome(self) -> Outcome:
        begin_s, notes = time.monotonic(), list[str]()
        before = self._foreign()
        self._guard.begin(_BEGIN_S)
        self._base = max((self._foreign() - before) / _BEGIN_S, 0.0)
        end_s = begin_s + self._seconds
        try:
            while time.monotonic() < end_s:
                order = [*range(len(self._statements)), -1]
                self._order.shuffle(order)
                for phase in order:
                    self._phase(phase, end_s)
        except LoadRose as error:
            notes.append(f"stopped early: {error}")
        wall_s = time.monotonic() - begin_s
        counts = sum(map(len, self._times_ns.values()))
        commands = {name: latencies_of(times) for name, times in self._times_ns.items() if times}
        return Outcome(counts, self._errors, wall_s, "qjoule", commands, tuple(notes))

    def _phase(self, number: int, end_s: float) -> None:
        """Runs one statement alone, or all together (-1), and then rests."""
        until_s = min(time.monotonic() + _SLICE_S, end_s)
        if until_s - time.monotonic() <= 0:
            return
        before, from_s = self._foreign(), time.monotonic()
        if number >= 0:
            self._repeat(self._session, str(number), self._statements[number], until_s)
        else:
            self._together(until_s)
        self._check(self._foreign() - before, time.monotonic() - from_s)
        time.sleep(max(min(_SLICE_S / 2, end_s - time.monotonic()), 0.0))

    def _foreign(self) -> int:
        """How many statements other clients have sent to the server so far."""
        return self._session.count_statements() - self._own

    def _check(self, foreign: int, seconds: float) -> None:
        per_s = foreign / max(seconds, 1e-3)
        # A handful of statements per second is no load: monitors ask as much.
        if per_s > max(self._growth * self._base, self._base + 20.0):
            raise LoadRose(
                f"others ask for {per_s:.0f} statements per second, and asked for "
                f"{self._base:.0f} at the start"
            )
        self._guard.check()

    def _together(self, until_s: float) -> None:
        chosen = self._order.sample(
            range(len(self._statements)), min(len(self._statements), _MOST_TOGETHER)
        )

        def repeat(number: int) -> None:
            with closing(self._open()) as session:
                self._repeat(session, ALL, self._statements[number], until_s)

        threads = [
            threading.Thread(target=repeat, args=(number,), daemon=True) for number in chosen
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, session: Session, name: str, sql: str, until_s: float) -> None:
        times = []
        while (now_s := time.monotonic()) < until_s:
            begin_ns = time.monotonic_ns()
            worked = session.execute(sql)
            times.append(time.monotonic_ns() - begin_ns)
            with self._lock:
                self._own += 1
                self._errors += not worked
            if not worked and time.monotonic() - now_s < 1e-3:
                time.sleep(0.01)  # a statement that fails at once is not repeated at full speed
        with self._lock:
            self._times_ns.setdefault(name, []).extend(times)
