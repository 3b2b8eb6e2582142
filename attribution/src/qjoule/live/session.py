"""A live session: the attach plan, the tracer, and the source that reads it without root."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from qjoule.contract import Mode, Rung
from qjoule.engine.selection import EVERYTHING, Selection
from qjoule.errors import QjouleError
from qjoule.live.source import StreamSource
from qjoule.live.titles import TitledStream
from qjoule.machine.in_force import for_machine
from qjoule.model.coefficients import IdlePolicy
from qjoule.root_part.reader_filter import confine_reader
from qjoule.servers.types import Flavour
from qjoule.session.applications import listen
from qjoule.session.trace_meta import trace_meta
from qjoule.session.tracer import (
    Settings,
    Tracer,
    find_and_put_agents,
    left_out,
    plan_tracing,
    start_tracer,
)
from qjoule.shapes import fingerprint

#: The kernel sums per window, so a window costs the tracer the same however busy the servers are.
WINDOW_MS = 100


class LiveSession(StreamSource):
    """Traces this machine's servers.

    Raises `QjouleError`: no root part, no server, no tracer, or the tracer's own words.
    """

    def __init__(
        self,
        *,
        idle: IdlePolicy = "separate",
        energy: str = "auto",
        pids: Collection[int] = (),
        rung: Rung | None = None,
        generic: bool = False,
        agent: bool = False,
        client_tags: bool = False,
        calibration: str | None = None,
        where: Selection = EVERYTHING,
    ) -> None:
        choose = for_machine(calibration)  # a file that cannot be read fails at once
        agents = find_and_put_agents(pids, client_tags=client_tags) if agent else {}
        plan = plan_tracing(pids, rung, generic=generic, agents=agents)
        settings = Settings(Mode.LIVE, window_ms=WINDOW_MS, energy=energy, client_tags=client_tags)
        self.left_out = tuple(left_out(plan))  #: running servers that are not traced, and why
        # What the root part opens for us it opens before the tracer is attached.
        self._tags, silence = listen(plan, every_call=True)
        if silence:
            self.left_out = (*self.left_out, silence)
        try:
            self._tracer: Tracer = start_tracer(plan, settings, pids, agents)
        except BaseException:
            if self._tags is not None:
                self._tags.close()
            raise
        names = ", ".join(planned.server.label for planned in plan.traced)
        meta = trace_meta(plan, literals=False)
        titled = [server.id for server in meta.servers if server.kind == Flavour.POSTGRES]
        super().__init__(
            TitledStream(self._tracer.stream, titled),
            fingerprint,
            meta,
            idle=idle,
            choose=choose,
            stop=self._tracer.stop,
            failure=self._last_words,
            name=names,
            telling=self._tags,
            client_tags=client_tags,
            where=where,
        )
        try:
            self._tracer.wait_attached()
            confine_reader()
            if self._tags is not None:
                self._tags.start()
        except BaseException:
            self.finish()
            raise

    def _last_words(self) -> str:
        try:
            self._tracer.close()
        except QjouleError as error:
            return str(error)
        return "the tracer was killed or crashed: start top again"

    def finish(self) -> None:
        """Ends the tracer and waits for it. Its failure was told where its stream ended."""
        if self._tags is not None:
            self._tags.close()
        with suppress(QjouleError, OSError):
            self._tracer.close()
