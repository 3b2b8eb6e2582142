# SPDX-License-Identifier: Apache-2.0
"""The parameters of a recording, and messages of `qjoule record` about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from qjoule.model.labels import BY_THREAD
from qjoule.servers.decoding import OtherIds
from qjoule.session.meter import Meter
from qjoule.trace.durable import write_whole
from qjoule.trace.meta import Captured, Meta


@dataclass(frozen=True)
class PowerFiles:
    """The machine's calibration and memory, copied into the trace so that it can be attributed with
    them on any machine."""

    files: Mapping[str, bytes] = field(default_factory=dict)  #: by name
    summary: str = "not calibrated"  #: a phrase on the calibration
    notes: tuple[str, ...] = ()  #: lines on the machine's memory

    @staticmethod
    def of(calibration: str | None, memory: str | None) -> PowerFiles:
        """Loads the files that the user chose, see `options`. A recording calls this in a separate
        process: the model that it imports takes 1.3 MB.

        Raises `QjouleError` for a file that does not fit.
        """
        from qjoule.machine import active_calibration, active_memory  # noqa: PLC0415
        from qjoule.machine.calibration import TRACE_FILE  # noqa: PLC0415
        from qjoule.machine.memory import TRACE_FILE as MEMORY_FILE  # noqa: PLC0415

        calibrated, flags = active_calibration.to_record(calibration)
        remembered, notes = active_memory.to_record(memory)
        files: dict[str, bytes] = {}
        if remembered is not None:
            files[MEMORY_FILE] = remembered.to_bytes()
        phrase = "; ".join(flags) or "not calibrated"
        if calibrated is not None:
            files[TRACE_FILE] = replace(calibrated, flags=flags).to_json().encode()
            flag_list = "".join(f", {flag}" for flag in flags)
            phrase = f"calibrated {calibrated.date[:10]}{flag_list}"
        return PowerFiles(files, phrase, notes)

    def write(self) -> None:
        """Writes the files into the working directory."""
        for name, content in self.files.items():
            write_whole(Path(name), content)


_NOTHING = PowerFiles()


@dataclass(frozen=True)
class Job:
    """The parameters of a recording."""

    duration: float | None
    program: tuple[str, ...]
    literals: bool
    spool_mb: int
    compress: bool
    directory: Path = Path()
    calibration: str | None = None  #: the user's choices, see `options`, for `power_files`
    memory: str | None = None
    power_files: PowerFiles = _NOTHING
    meter: Meter | None = None
    rest_s: float | None = None
    other_ids: OtherIds | None = None  #: finds other tools' ids of statements, if requested
    conversion: str = "end"  #: when the tables are made: end or later

    @property
    def names_power_files(self) -> bool:
        """True if the user named a calibration or a memory."""
        return self.calibration is not None or self.memory is not None

    @property
    def converts_later(self) -> bool:
        return self.conversion == "later"

    @property
    def seconds(self) -> float | None:
        """Duration of the recording; None if it runs until it is stopped."""
        return None if self.duration is None else self.duration + (self.rest_s or 0.0)

    @property
    def until(self) -> str:
        """Says when the recording ends."""
        rest_text = "" if self.rest_s is None else f", with {self.rest_s:g} s of rest first"
        if self.program:
            return f"until {Path(self.program[0]).name} ends{rest_text}"
        if self.duration is None:
            return f"Ctrl-C stops{rest_text}"
        return f"for {self.duration:g} s{rest_text}, Ctrl-C stops"

    def capture_summary(self, meta: Meta) -> str:
        """Summarises what was captured for a later conversion."""
        from qjoule.commands.conversion import pluralised  # noqa: PLC0415 - not while it records

        capture = meta.captured or Captured()
        size = f"{capture.bytes / 1e6:,.1f} MB"
        queries = pluralised(capture.queries, "query", "queries")
        return f"{self.directory}: captured {queries} in {size}: run `qjoule convert` to read it"


def servers(meta: Meta) -> str:
    """Lists the traced servers with their attach modes."""
    return ", ".join(
        f"{server.name} ({'by thread' if server.attach_mode == BY_THREAD else server.attach_mode})"
        for server in meta.servers
    )
