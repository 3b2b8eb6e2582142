# SPDX-License-Identifier: Apache-2.0
"""Every key, through textual, with a source that yields what the test puts in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from textual.pilot import Pilot

from fake_source import FakeSource, snapshot
from qjoule.errors import QjouleError
from qjoule.reporters.live_state import Mode, ViewState
from qjoule.reporters.live_view import Canvas, LiveView
from qjoule.shapes.other_id import OtherId
from qjoule.snapshots import Controls


def text(app: LiveView) -> str:
    canvas = app.query_one(Canvas)
    return "\n".join(canvas.render_line(y).text for y in range(canvas.size.height))


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread will certainly do; the limit is the test's own timeout."""
    while not condition():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    source: FakeSource | None = None, export: Callable[[ViewState], str] = lambda _: "out.json"
) -> AsyncIterator[tuple[LiveView, Pilot[int]]]:
    app = LiveView(source or FakeSource(snapshot()), Controls(), export)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: "SELECT users.location" in text(app) or source is not None)
        yield app, pilot


def run(scenario: Callable[[], object]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_sort_turn_pause_and_cumulative_keys() -> None:
    async def scenario() -> None:
        async with running() as (app, pilot):
            for key, status in (("c", "CPU ▼"), ("l", "latency ▼"), ("n", "calls ▼")):
                await pilot.press(key)
                assert status in text(app)
            await pilot.press("<")
            assert "calls ▲" in text(app)
            await pilot.press("e", "<", "space")
            assert "PAUSED" in text(app)
            assert "energy ▼" in text(app)
            await pilot.press("a")
            assert "since reset" in text(app)

    run(scenario)


def test_filter_keys() -> None:
    async def scenario() -> None:
        async with running() as (app, pilot):
            await pilot.press("/", *"delete")
            assert "filter: delete" in text(app)
            assert "users.location" not in text(app)
            await pilot.press("enter")
            assert "filter 'delete'" in text(app)
            await pilot.press("escape")
            assert "users.location" in text(app)

    run(scenario)


def test_drill_down_and_help() -> None:
    async def scenario() -> None:
        async with running() as (app, pilot):
            await pilot.press("down", "enter")
            assert app.state.mode is Mode.DETAIL
            assert "ORDER BY n DESC LIMIT ?" in text(app)
            assert "latency p99" in text(app)
            await pilot.press("escape", "h")
            assert "turn the sort order round" in text(app)
            await pilot.press("h")
            assert "TOTAL measured" in text(app)

    run(scenario)


def test_group_interval_and_reset_reach_the_source() -> None:
    async def scenario() -> None:
        async with running() as (app, pilot):
            await pilot.press("g")
            assert app._controls.group == "server"
            await pilot.press("+")
            assert app._controls.interval_s == 5.0
            await pilot.press("-", "-")
            assert app._controls.interval_s == 1.0
            await pilot.press("R")
            assert app._controls.resets == 1

    run(scenario)


def test_export_says_where_or_why_not() -> None:
    def fails(_: ViewState) -> str:
        raise QjouleError("the disk is full")

    async def scenario() -> None:
        async with running() as (app, pilot):
            await pilot.press("E")
            assert "written: out.json" in text(app)
        async with running(export=fails) as (app, pilot):
            await pilot.press("E")
            assert "not written: the disk is full" in text(app)

    run(scenario)


def test_quit_keys_stop_the_source() -> None:
    async def scenario() -> None:
        for key in ("q", "ctrl+c"):
            async with running() as (app, pilot):
                await pilot.press(key)
            assert app.return_value == 0
            assert app._controls.stopped
            assert not app._thread.is_alive()

    run(scenario)


def test_a_blocked_source_does_not_block_keys() -> None:
    async def scenario() -> None:
        async with running(FakeSource()) as (app, pilot):
            await until(lambda: "waiting for the first interval" in text(app))
            await pilot.press("h")
            assert "Keys" in text(app)
            await pilot.press("q")
        assert app.return_value == 0

    run(scenario)


def test_a_failing_source_shows_its_error_and_keeps_the_screen() -> None:
    async def scenario() -> None:
        source = FakeSource(snapshot())
        async with running(source) as (app, _):
            source.put(QjouleError("the tracer died: see its message"))
            await until(lambda: "the tracer died" in text(app))
            assert "users.location" in text(app)
            assert "END OF TRACE" in text(app)
        assert isinstance(app.failure, QjouleError)

    run(scenario)


def test_resize_and_click() -> None:
    async def scenario() -> None:
        async with running() as (app, pilot):
            await pilot.resize_terminal(60, 20)
            await until(lambda: len(text(app).splitlines()) == 20)
            await pilot.pause()
            assert "CPU ms/CALL" not in text(app)
            await pilot.resize_terminal(200, 50)
            await until(lambda: "CPU ms/CALL" in text(app))
            await pilot.click(offset=(20, 7))
            assert app.state.cursor(app.state.rows()) == 2

    run(scenario)


def test_only_what_changed_is_redrawn() -> None:
    async def scenario() -> None:
        async with running() as (app, pilot):
            await pilot.pause()
            canvas = app.query_one(Canvas)
            assert canvas.show(list(canvas._lines)) == 0
            lines = list(canvas._lines)
            lines[3] = lines[2]
            assert canvas.show(lines) == 1

    run(scenario)


def test_the_detail_lists_ids_of_other_tools() -> None:
    async def scenario() -> None:
        plain = snapshot()
        ids = OtherId("tool_id", "4711", "tool 1"), OtherId("other_id", None, "tool 2", "too long")
        rows = tuple(replace(row, ids=ids) for row in plain.total.rows)
        found = replace(plain.total, rows=rows)
        shown = replace(plain, interval=found, total=found)
        async with running(FakeSource(shown)) as (app, pilot):
            await until(lambda: "SELECT users.location" in text(app))
            await pilot.press("enter")
            assert "tool_id · 4711 (tool 1)" in text(app).replace("  ", " · ")
            assert "none: too long (tool 2)" in text(app)

    run(scenario)
