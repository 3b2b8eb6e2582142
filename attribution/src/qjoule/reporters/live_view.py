# SPDX-License-Identifier: Apache-2.0
"""The live view in a terminal: textual reads keys and sizes, a `ViewState` decides what is shown.

Only spans that changed since the last frame are redrawn, and new snapshots at most `REDRAWS_PER_S`
times a second, so that the view is usable over a slow line.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from qjoule.errors import QjouleError
from qjoule.reporters.live_frame import Line
from qjoule.reporters.live_screen import HEADER_LINES, compose, visible_rows
from qjoule.reporters.live_state import Effect, ViewState, row_key
from qjoule.reporters.live_terminal import Terminal
from qjoule.snapshots import Controls, Snapshot, SnapshotSource

REDRAWS_PER_S = 4.0
#: Time at the view's end to wait for a terminal that accepts nothing.
TERMINAL_S = 0.5

#: The terminal's own sixteen colours, so that the view fits the user's theme.
STYLES = {
    "": Style(),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
    "title": Style(bold=True),
    "head": Style(reverse=True),
    "sorted": Style(reverse=True, bold=True, underline=True),
    "cursor": Style(color="black", bgcolor="cyan"),
    "accent": Style(color="cyan"),
    "good": Style(color="green"),
    "warn": Style(color="yellow", bold=True),
    "bad": Style(color="red", bold=True),
}
_PLAIN_STYLES = {
    name: Style(bold=style.bold, dim=style.dim, reverse=style.reverse or name == "cursor")
    for name, style in STYLES.items()
}


class Canvas(Widget):
    """Draws the lines that `frame` makes for a width and height; redraws only changes."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(self, frame: Callable[[int, int], list[Line]], styles: dict[str, Style]) -> None:
        super().__init__()
        self._frame = frame
        self._styles_by_name = styles
        self._lines: list[Line] = []

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        width, height = self.size
        if width and height:
            self.show(self._frame(width, height))

    def show(self, lines: list[Line]) -> int:
        """Shows a new frame; returns the number of redrawn lines."""
        before, self._lines = self._lines, lines
        changed = [
            Region(0, y, self.size.width, 1)
            for y in range(max(len(before), len(lines)))
            if y >= len(before) or y >= len(lines) or before[y] != lines[y]
        ]
        regions = [self._changed_region(before, region) for region in changed]
        if regions:
            self.refresh(*regions)
        return len(regions)

    def _changed_region(self, before: list[Line], region: Region) -> Region:
        """Returns the part of a line from its first to its last changed span."""
        y = region.y
        if y >= len(before) or y >= len(self._lines):
            return region
        old, new = before[y], self._lines[y]
        if old.style != new.style:
            return region
        moved = set(old.spans) ^ set(new.spans)
        first = min(span.x for span in moved)
        last = max(span.x + cell_len(span.text) for span in moved)
        return Region(first, y, min(last, region.width) - first, 1)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._lines):
            return Strip.blank(width)
        line = self._lines[y]
        blank = self._styles_by_name[line.style]
        segments, x = [], 0
        for span in line.spans:
            if span.x > x:
                segments.append(Segment(" " * (span.x - x), blank))
            segments.append(Segment(span.text, self._styles_by_name[span.style]))
            x = max(x, span.x) + cell_len(span.text)
        return Strip(segments).adjust_cell_length(width, blank)


class LiveView(App[int]):
    """`qjoule top`: a canvas, a source in another thread, and the keys."""

    BINDINGS: ClassVar[list[BindingType]] = []
    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; }"

    def __init__(
        self,
        source: SnapshotSource,
        controls: Controls,
        export: Callable[[ViewState], str],
        *,
        color: bool = True,
        no_stacks: str = "",
    ) -> None:
        """`no_stacks`: why the source has no stacks, or ''."""
        super().__init__(driver_class=Terminal, ansi_color=True)
        self.state = ViewState(
            title=source.name,
            groups=source.groups,
            group=controls.group,
            interval_s=controls.interval_s,
            no_stacks=no_stacks,
        )
        self.failure: Exception | None = None
        self._source = source
        self._controls = controls
        self._export = export
        self._canvas = Canvas(
            lambda width, height: compose(self.state, width, height),
            STYLES if color else _PLAIN_STYLES,
        )
        self._stale = False
        self._thread = threading.Thread(target=self._feed, name="snapshots", daemon=True)

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_mount(self) -> None:
        self._end_with_signals(asyncio.get_running_loop())
        self.set_interval(1.0 / REDRAWS_PER_S, self._draw_if_stale)
        self._thread.start()

    def _end_with_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes signals and the terminal's end close the view, even if the loop waits for the
        terminal."""
        terminal = self._driver if isinstance(self._driver, Terminal) else None

        def leave(*_signal: object) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._leave)
            if terminal is not None:
                late = threading.Timer(TERMINAL_S, terminal.screen.give_up)
                late.daemon = True
                late.start()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Not available outside the main thread, where tests may run the view.
            with suppress(ValueError):
                signal.signal(number, leave)
        if terminal is not None:
            terminal.on_hangup(leave)

    def on_unmount(self) -> None:
        self._controls.stop()
        self._source.close()
        # A source that hangs in a read must not hang the terminal: its thread is a daemon.
        self._thread.join(timeout=1.0)

    def _take(self, snapshot: Snapshot) -> None:
        self.state.accept(snapshot)
        self._stale = True

    def _end(self, error: Exception | None) -> None:
        """Handles the source's end; `error` is the reason if that was unexpected."""
        self.state.ended = True
        if error is not None:
            self.failure = error
            self.state.message = " ".join(str(error).split()) or repr(error)
        self._stale = True

    async def on_event(self, event: events.Event) -> None:
        # The state handles every key before textual's own bindings (Tab, Ctrl-Q, Ctrl-C).
        if isinstance(event, events.Key):
            self._press(event.key, event.character)
            return
        await super().on_event(event)

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to the clicked row."""
        rows = visible_rows(self.state, self.size.height)
        index = event.y - HEADER_LINES - 1
        if 0 <= index < len(rows):
            self.state.selected = row_key(rows[index])
            self._draw()

    def on_mouse_scroll_down(self) -> None:
        self._press("down", None)

    def on_mouse_scroll_up(self) -> None:
        self._press("up", None)

    def _press(self, key: str, character: str | None) -> None:
        effect = self.state.press(key, character)
        if effect is Effect.QUIT:
            self._leave()
            return
        if effect is Effect.CONTROLS:
            self._controls.set(interval_s=self.state.interval_s, group=self.state.group)
        elif effect is Effect.RESET:
            self._controls.reset()
        elif effect is Effect.EXPORT:
            self.state.message = self._export_message()
        self._draw()

    def _export_message(self) -> str:
        try:
            return f"written: {self._export(self.state)}"
        except (OSError, QjouleError) as error:
            return f"not written: {error}"

    def _leave(self) -> None:
        self._controls.stop()
        self.exit(0)

    def _draw_if_stale(self) -> None:
        if self._stale:
            self._draw()

    def _draw(self) -> None:
        self._stale = False
        self._canvas.draw()

    def _feed(self) -> None:
        """Runs in the source's thread, which may block. The application's thread shows
        snapshots."""
        error: Exception | None = None
        try:
            for snapshot in self._source.snapshots(self._controls):
                if self._controls.stopped:
                    return
                self.call_later(self._take, snapshot)
        except Exception as caught:  # shown to the user, since threads' errors are not reported
            error = caught
        if not self._controls.stopped:
            self.call_later(self._end, error)
