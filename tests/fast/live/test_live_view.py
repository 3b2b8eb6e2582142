# SPDX-License-Identifier: Apache-2.0
"""The live view in textual, with a source that yields what the test puts in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from fake_attribution import FakeSource, snapshot
from qjoule.errors import QjouleError
from qjoule.reporters.live_view import Canvas, LiveView
from qjoule.snapshots import Controls


def text(app: LiveView) -> str:
    canvas = app.query_one(Canvas)
    return "\n".join(canvas.render_line(y).text for y in range(canvas.size.height))


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread will certainly do; the limit is the test's own timeout."""
    while not condition():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(source: FakeSource | None = None) -> AsyncIterator[tuple[LiveView, Pilot[int]]]:
    app = LiveView(source or FakeSource(snapshot()), Controls(), lambda _state: "out.json")
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: "SELECT users.location" in text(app) or source is not None)
        yield app, pilot


def test_a_blocked_source_does_not_block_keys() -> None:
    async def scenario() -> None:
        async with running(FakeSource()) as (app, pilot):
            await until(lambda: "waiting for the first interval" in text(app))
            await pilot.press("h")
            assert "Keys" in text(app)
            await pilot.press("q")
        assert app.return_value == 0

    asyncio.run(scenario())


def test_a_failing_source_shows_its_error_and_keeps_the_screen() -> None:
    async def scenario() -> None:
        source = FakeSource(snapshot())
        async with running(source) as (app, _):
            source.put(QjouleError("the tracer died: see its message"))
            await until(lambda: "the tracer died" in text(app))
            assert "users.location" in text(app)
            assert "END OF TRACE" in text(app)
        assert isinstance(app.failure, QjouleError)

    asyncio.run(scenario())


def test_keys_reach_the_screen_and_the_source_and_quitting_stops_it() -> None:
    async def scenario(quit_key: str) -> None:
        async with running() as (app, pilot):
            await pilot.press("n", "<", "space", "a", "E")
            screen = text(app)
            for words in ("calls ▲", "PAUSED", "since reset", "written: out.json"):
                assert words in screen
            await pilot.press("/", *"delete", "enter", "g", "+", "+", "-", "R")
            assert "filter 'delete'" in text(app)
            assert "users.location" not in text(app)
            controls = app._controls
            assert (controls.group, controls.interval_s, controls.resets) == ("server", 5.0, 1)
            await pilot.press(quit_key)
        assert app.return_value == 0
        assert app._controls.stopped
        assert not app._thread.is_alive()

    asyncio.run(scenario("q"))
    asyncio.run(scenario("ctrl+c"))
