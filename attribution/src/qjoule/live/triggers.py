# SPDX-License-Identifier: Apache-2.0
"""The triggers of a flight recorder: attributes each segment of its ring once it is complete.

A segment is converted and attributed as any recording is, in a thread beside the reader. So joules
are those that `qjoule attribute` would give, without work for the tracer.
"""

from __future__ import annotations

import math
import queue
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from scipy import stats

from qjoule.engine.attribute import NOBODY, Observer, attribute
from qjoule.engine.other_results import BusiestQueries, Heavy, heavy_queries
from qjoule.errors import QjouleError
from qjoule.machine.active_calibration import for_trace
from qjoule.model.coefficients_used import Calibrated
from qjoule.model.run_ratios import LEVEL
from qjoule.spool.convert import convert
from qjoule.spool.files import FOLDER, SEGMENTS, RingFiles, names_of, spool_of
from qjoule.spool.names import SegmentBegins, line_of
from qjoule.stream.pending import PartOf
from qjoule.trace.durable import replace_meta
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

#: With fewer figures the prediction interval is too wide to be of use.
LEAST = 8


def expected(past: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % prediction interval of the next of some positive figures; None: they are too few.

    The figures are treated as independent and log-normal, as in `qjoule.model.run_ratios`. Their
    next one lies within mean +/- t s sqrt(1 + 1/n) of the logs (Hahn and Meeker, Statistical
    Intervals, 1991, section 4.8).
    """
    logs = [math.log(value) for value in past if value > 0 and math.isfinite(value)]
    if len(logs) < LEAST:
        return None
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1)) * stdev(logs)
    reach *= math.sqrt(1 + 1 / len(logs))
    centre = fmean(logs)
    return math.exp(centre - reach), math.exp(centre + reach)


def left_interval(now: tuple[float, float], past: Sequence[float]) -> tuple[float, float] | None:
    """Returns the prediction interval of `past` if it does not overlap `now`, else None.

    `now`: a figure's 95 % interval.
    """
    ends = expected(past)
    if ends is None or (now[1] >= ends[0] and now[0] <= ends[1]):
        return None
    return ends


#: Most segments that wait. Later ones are skipped: the ring would overwrite them meanwhile.
MAX_WAITING = 3
#: A shape's figure of a segment needs so many calls.
LEAST_CALLS = 5
#: Figures that a shape is compared with, and shapes: the most recently seen.
PAST, MAX_SHAPES = 60, 2_000
#: Queries that still run.
MAX_RUNNING = 10_000
_COPIED_FILES = ("calibration.json", "memory.bin")
_TEXT_CHARACTERS = 100
_NJ = 1e-9


@dataclass(frozen=True)
class _Segment:
    """A complete segment: all that ran in it until `end_ns` is known."""

    begins: SegmentBegins
    end_ns: int
    meta: Meta


class Judge:
    """Calls `on_find(trigger, description)` for what the triggers find.

    Args:
        shapes: check each shape's J/call.
        query_j: report queries that took more than this; None: do not.
        patience_s: a query that took too much is reported once it has ended, so that a part holds
            all of it, or after so long.
        say: logs errors.

    Raises:
        OSError: there is no room for its folders in the ring's.
    """

    def __init__(
        self,
        trace: Path,
        *,
        shapes: bool,
        query_j: float | None,
        patience_s: float,
        on_find: Callable[[str, str], object],
        say: Callable[[str], object],
    ) -> None:
        self._files, self._trace = RingFiles(trace), trace
        self._shapes, self._query_j = shapes, query_j
        self._patience_ns = round(patience_s / _NJ)
        self._on_find, self._say = on_find, say
        self._waiting: queue.Queue[_Segment | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._past: dict[str, deque[float]] = {}
        #: By query that has not ended: energy so far, in nJ, and when it was first seen.
        self._running: dict[int, tuple[int, int]] = {}
        self._reported: set[int] = set()
        self.left_out = 0  #: segments that were skipped
        for slot in range(SEGMENTS):
            folder = self._folder_of(slot + 1)
            (folder / FOLDER).mkdir(parents=True)
            # Hard links copy nothing and are regular files. They cannot be made later (seccomp).
            spool_of(folder).hardlink_to(self._files.spool(slot + 1))
            for name in _COPIED_FILES:
                with suppress(FileNotFoundError):
                    shutil.copyfile(trace / name, folder / name)

    def start(self) -> None:
        self._thread.start()

    def add(self, begins: SegmentBegins, end_ns: int, meta: Meta) -> None:
        """Queues a complete segment: all that ran in it until `end_ns` is known."""
        try:
            self._waiting.put_nowait(_Segment(begins, end_ns, meta))
        except queue.Full:
            self.left_out += 1
            if self.left_out == 1:
                self._say("triggers cannot keep up: they look at a part of what is recorded")

    def close(self) -> None:
        """Stops the thread, and removes its folders."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)
        if self._thread.is_alive():  # tracing may have failed before it was started
            self._thread.join(60)
        for slot in range(SEGMENTS):
            shutil.rmtree(self._folder_of(slot + 1), ignore_errors=True)

    def _folder_of(self, segment: int) -> Path:
        return self._files.folder / f"look-{(segment - 1) % SEGMENTS}"

    def _work(self) -> None:
        while (segment := self._waiting.get()) is not None:
            try:
                self._judge(segment)
            except (QjouleError, OSError, ValueError) as error:
                self.left_out += 1
                if self.left_out == 1:
                    self._say(f"triggers could not look at a part of what is recorded: {error}")

    def _judge(self, segment: _Segment) -> None:
        trace = self._converted(segment)
        calibrated = for_trace(trace)
        busiest = BusiestQueries() if self._shapes and self._query_j is not None else None
        if self._shapes:
            self._judge_shapes(trace, calibrated, busiest or NOBODY)
        if self._query_j is not None:
            heavy = heavy_queries(trace, calibrated, busiest)
            self._judge_queries(heavy, segment, round(self._query_j / _NJ))

    def _converted(self, segment: _Segment) -> Trace:
        begins = segment.begins
        folder = self._folder_of(begins.segment)
        part = PartOf(begins.begin_ns, segment.end_ns, begins.frame - 1, begins.lost)
        with names_of(folder).open("wb") as file:
            file.write(line_of(part))
            for path in (self._files.state(begins.segment), self._files.names(begins.segment)):
                with path.open("rb") as names:
                    if path == self._files.state(begins.segment):
                        names.readline()
                    shutil.copyfileobj(names, file)
        replace_meta(folder, replace(segment.meta, loss={}, lost_cpu_ns=0, stopped=None))
        convert(folder, keep=True)
        return Trace(folder)

    def _judge_shapes(self, trace: Trace, calibrated: Calibrated, observer: Observer) -> None:
        by_shape = attribute(trace, ("fingerprint",), calibrated=calibrated, observer=observer)
        for row in by_shape.rows:
            if row.calls < LEAST_CALLS or row.energy_nj <= 0:
                continue
            name = row.keys.get("fingerprint", "")
            past = self._past.pop(name, deque[float](maxlen=PAST))
            low, high = (end / row.calls for end in row.energy_nj_ci95)
            now = row.energy_nj / row.calls
            if ends := left_interval((low, high), past):
                was = f"{ends[0] * _NJ:.3g} to {ends[1] * _NJ:.3g}"
                shape = row.shape[:_TEXT_CHARACTERS]
                self._on_find("shape", f"{now * _NJ:.3g} J/call, before {was}: {shape}")
            past.append(now)
            self._past[name] = past
            if len(self._past) > MAX_SHAPES:
                self._past.pop(next(iter(self._past)))

    def _judge_queries(self, heavy: Sequence[Heavy], segment: _Segment, most_nj: int) -> None:
        for query in heavy:
            met = (0, segment.begins.begin_ns)
            before_nj, since_ns = self._running.pop(query.query, met)
            energy_nj = before_nj + query.energy_nj
            due = query.ended or segment.end_ns - since_ns >= self._patience_ns
            if energy_nj > most_nj and due and query.query not in self._reported:
                self._reported.add(query.query)
                what = f"{energy_nj * _NJ:.3g} J, more than {most_nj * _NJ:.3g} J"
                more = query.text[:_TEXT_CHARACTERS] if query.ended else "so far, and it still runs"
                self._on_find("query", f"a query took {what}: {more or 'its text is not known'}")
            if query.ended:
                self._reported.discard(query.query)
                continue
            self._running[query.query] = energy_nj, since_ns
            if len(self._running) > MAX_RUNNING:
                oldest = next(iter(self._running))
                del self._running[oldest]
                self._reported.discard(oldest)
