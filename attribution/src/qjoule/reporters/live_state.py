# SPDX-License-Identifier: Apache-2.0
"""The state of the live view, and how keys change it. No terminal, no threads, no clock."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from qjoule.model.result import Attribution, Row
from qjoule.reporters.labels import fingerprint, query_label
from qjoule.snapshots import Snapshot

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
HISTORY = 240  #: intervals stored per row
HISTORY_ROWS = 4096  #: rows with a history; the row that was unseen for longest is dropped

SORTS: dict[str, tuple[str, Callable[[Row], float]]] = {
    "e": ("energy", lambda row: row.energy_nj),
    "c": ("CPU", lambda row: row.cpu_ns),
    "l": ("latency", lambda row: -1.0 if row.latency_ns_mean is None else row.latency_ns_mean),
    "n": ("calls", lambda row: row.calls),
}


class Mode(Enum):
    TABLE = "table"
    DETAIL = "detail"
    STACKS = "stacks"
    HELP = "help"


class Effect(Enum):
    """The effect of a key outside the state."""

    NONE = "none"
    QUIT = "quit"
    EXPORT = "export"
    RESET = "reset"
    CONTROLS = "controls"  #: `interval_s` or `group` changed


def row_key(row: Row) -> str:
    """Returns an identity of a row that is the same in all snapshots."""
    keys = (f"{name}={row.keys[name]}" for name in sorted(row.keys))
    return "\x1f".join([row.server, "" if row.exact else row.attach_mode, *keys])


def _haystack(row: Row) -> str:
    """Returns the text that a filter searches: the row's label, fingerprint, server, and
    `key=value` of each key, in lower case, one per line."""
    keys = (f"{key}={value}" for key, value in row.keys.items())
    return "\n".join((query_label(row), fingerprint(row), row.server, *keys)).casefold()


@dataclass
class ViewState:
    """Sort order, columns, filter, pause, group, interval, cursor and history of one view."""

    title: str = ""  #: the watched host or recording
    groups: Sequence[str] = ("fingerprint",)
    group: str = "fingerprint"
    interval_s: float = 2.0
    sort: str = "e"
    descending: bool = True
    waits: bool = False  #: shows columns of the latency's parts instead of a call's cost
    filter: str = ""
    typing: str | None = None  #: the filter while it is being typed
    paused: bool = False
    cumulative: bool = False  #: shows figures since the last reset instead of the last interval
    mode: Mode = Mode.TABLE
    selected: str | None = None  #: key of the row under the cursor
    scroll: int = 0  #: first line shown in the detail and help modes
    message: str = ""  #: one line for the user, until the next key
    no_stacks: str = ""  #: why no stacks are sampled
    snapshot: Snapshot | None = None
    ended: bool = False
    history_w: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)
    power_w: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))

    @property
    def attribution(self) -> Attribution | None:
        if self.snapshot is None:
            return None
        return self.snapshot.total if self.cumulative else self.snapshot.interval

    def accept(self, snapshot: Snapshot) -> None:
        """Adds a snapshot. A paused view keeps showing the old one, but stores the history."""
        self.ended = self.ended or snapshot.ended
        self.groups = snapshot.groups or self.groups
        self._record(snapshot.interval)
        if not self.paused or self.snapshot is None:
            self.snapshot = snapshot

    @property
    def current_filter(self) -> str:
        """The filter as typed so far, else as entered."""
        return self.filter if self.typing is None else self.typing

    def rows(self) -> list[Row]:
        """Returns rows of queries and threads, filtered and sorted; ties keep the model's order."""
        attribution = self.attribution
        if attribution is None:
            return []
        needle = self.current_filter.casefold()
        rows = [
            row for row in attribution.tabled if not row.not_selected and needle in _haystack(row)
        ]
        return sorted(rows, key=SORTS[self.sort][1], reverse=self.descending)

    def cursor(self, rows: Sequence[Row]) -> int:
        """Returns the index of the row under the cursor; 0 if that row is gone or was never set."""
        return next((i for i, row in enumerate(rows) if row_key(row) == self.selected), 0)

    def selected_row(self) -> Row | None:
        rows = self.rows()
        return rows[self.cursor(rows)] if rows else None

    def press(self, key: str, character: str | None = None) -> Effect:
        """Handles a key, by textual's name of the key (`e`, `enter`, `less_than_sign`, ...)."""
        self.message = ""
        if self.typing is not None:
            return self._edit_filter(key, character)
        if key == "ctrl+c" or character == "q":
            return Effect.QUIT
        if self.mode is not Mode.TABLE:
            return self._scroll_page(key, character)
        if self._navigate(key):
            return Effect.NONE
        return self._command(" " if key == "space" else character or "")

    def _navigate(self, key: str) -> bool:
        """Handles keys that are not characters; returns whether `key` was one."""
        if key in ("up", "down", "pageup", "pagedown", "home", "end"):
            self._move(key)
        elif key == "enter":
            self._drill_down(Mode.DETAIL)
        elif key == "escape":
            self.filter = ""
        else:
            return False
        return True

    def _command(self, character: str) -> Effect:
        effect = Effect.NONE
        if character in SORTS:
            self.sort = character
        elif character == "<":
            self.descending = not self.descending
        elif character == "w":
            self.waits = not self.waits
        elif character == "f":
            self._drill_down(Mode.STACKS)
        elif character == "/":
            self.typing = self.filter
        elif character == " ":
            self.paused = not self.paused
        elif character == "a":
            self.cumulative = not self.cumulative
        elif character in ("h", "?"):
            self.mode, self.scroll = Mode.HELP, 0
        elif character == "g":
            effect = self._next_group()
        elif character in ("+", "=", "-"):
            effect = self._change_interval(-1 if character == "-" else 1)
        elif character == "E":
            effect = Effect.EXPORT
        elif character == "R":
            self._reset_history()
            effect = Effect.RESET
        return effect

    def _edit_filter(self, key: str, character: str | None) -> Effect:
        if key == "ctrl+c":
            return Effect.QUIT
        typed = self.typing or ""
        if key == "enter":
            self.filter, self.typing = typed, None
        elif key == "escape":
            self.typing = None
        elif key in ("backspace", "ctrl+h"):
            self.typing = typed[:-1]
        elif key == "ctrl+u":
            self.typing = ""
        elif character is not None and character.isprintable():
            self.typing = typed + character
        return Effect.NONE

    def _scroll_page(self, key: str, character: str | None) -> Effect:
        steps = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
        if key in steps:
            self.scroll = max(0, self.scroll + steps[key])
        elif key == "home":
            self.scroll = 0
        elif key in ("escape", "enter", "backspace") or character in ("h", "?"):
            self.mode, self.scroll = Mode.TABLE, 0
        elif character == "f" and self.mode is Mode.DETAIL:
            self._drill_down(Mode.STACKS)
        elif character == "f" and self.mode is Mode.STACKS:
            self.mode, self.scroll = Mode.TABLE, 0
        elif character == "E":
            return Effect.EXPORT
        elif character == " ":
            self.paused = not self.paused
        elif character == "a":
            self.cumulative = not self.cumulative
        return Effect.NONE

    def _move(self, key: str) -> None:
        rows = self.rows()
        if not rows:
            return
        last, index = len(rows) - 1, self.cursor(rows)
        targets = {"up": index - 1, "down": index + 1, "pageup": index - 10, "pagedown": index + 10}
        target = {**targets, "home": 0, "end": last}[key]
        self.selected = row_key(rows[min(last, max(0, target))])

    def _drill_down(self, mode: Mode) -> None:
        row = self.selected_row()
        if mode is Mode.STACKS and self.no_stacks:
            self.message = self.no_stacks
        elif row is None:
            self.message = "no row to look into"
        else:
            self.selected = row_key(row)
            self.mode, self.scroll = mode, 0

    def _next_group(self) -> Effect:
        groups = list(self.groups)
        if len(groups) < 2:
            self.message = f"this source can only group by {self.group}"
            return Effect.NONE
        index = groups.index(self.group) if self.group in groups else -1
        self.group = groups[(index + 1) % len(groups)]
        self.selected = None
        self.message = f"grouping by {self.group} from the next snapshot on"
        return Effect.CONTROLS

    def _change_interval(self, step: int) -> Effect:
        further = [seconds for seconds in INTERVALS_S if (seconds - self.interval_s) * step > 0]
        self.interval_s = next(iter(further[::step]), self.interval_s)
        return Effect.CONTROLS

    def _reset_history(self) -> None:
        self.history_w.clear()
        self.power_w.clear()
        self.message = "counting anew from the next snapshot on"

    def _record(self, interval: Attribution) -> None:
        seconds = interval.trace.duration_s
        energy_known = seconds > 0 and bool(interval.domains)
        self.power_w.append(
            interval.main.measured_nj * 1e-9 / seconds if energy_known else math.nan
        )
        watts = {
            row_key(row): row.energy_nj * 1e-9 / seconds if energy_known else math.nan
            for row in interval.tabled
        }
        for key, series in self.history_w.items():
            if key not in watts:
                series.append(0.0 if energy_known else math.nan)
        for key, value in watts.items():
            series = self.history_w.setdefault(key, deque(maxlen=HISTORY))
            series.append(value)
            self.history_w.move_to_end(key)
        while len(self.history_w) > HISTORY_ROWS:
            self.history_w.popitem(last=False)
