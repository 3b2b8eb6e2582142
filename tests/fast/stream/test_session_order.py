# SPDX-License-Identifier: Apache-2.0
"""The order in which a tracing command gives up its rights, and cleans up afterwards."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

import fake_tracer as ft
from qjoule.contract import Block, Mode
from qjoule.errors import QjouleError
from qjoule.session import tracing as module
from qjoule.session.targets import NO_SERVERS
from qjoule.session.tracer import Settings
from qjoule.session.tracing import Applications, tracing

SETTINGS = Settings(Mode.RECORD)


class FakeTracer:
    more_counters = ("branch-misses",)

    def __init__(self, happened: list[str], *, attaches: bool = True) -> None:
        self._happened, self._attaches = happened, attaches
        self.stream = io.BytesIO(ft.head() + ft.end(ft.BEGIN_NS))
        happened.append("started")

    def wait_attached(self) -> None:
        if not self._attaches:
            raise QjouleError("no such probe")
        self._happened.append("attached")

    def abandon(self) -> None:
        self._happened.append("ended")


class FakeTags:
    def __init__(self, happened: list[str]) -> None:
        self._happened = happened

    def start(self) -> None:
        self._happened.append("tags")

    def close(self) -> None:
        self._happened.append("closed")


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    seen: list[str] = []

    def listen(_plan: object, *, every_call: bool) -> tuple[Any, str]:
        seen.append("all calls" if every_call else "unseen calls")
        return FakeTags(seen), ""

    monkeypatch.setattr(module, "listen", listen)
    monkeypatch.setattr(module, "start_tracer", lambda *_: FakeTracer(seen))
    monkeypatch.setattr(module, "confine_reader", lambda: seen.append("confined"))
    yield seen


def test_nothing_is_started_once_confined_and_tags_are_read_last(happened: list[str]) -> None:
    def attached(_tracer: object) -> None:
        happened.append("program")

    every = Applications.UNSEEN
    with tracing(NO_SERVERS, SETTINGS, applications=every, attached=attached) as running:
        happened.append("block")
        assert [frame.kind for frame in running.stream][-1] is Block.END
        assert running.meta.more_counters == ("branch-misses",)
    opened, ends = ["unseen calls", "started", "attached", "program"], ["block", "ended", "closed"]
    assert happened == [*opened, "confined", "tags", *ends]


def test_a_calibration_hears_nobody_and_may_start_its_loads(happened: list[str]) -> None:
    with tracing(NO_SERVERS, SETTINGS, confined=False) as running:
        assert running.tags is None
    assert happened == ["started", "attached", "ended"]


def test_a_tracer_that_does_not_attach_is_ended_and_nobody_is_heard(
    happened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "start_tracer", lambda *_: FakeTracer(happened, attaches=False))
    with (
        pytest.raises(QjouleError, match="no such probe"),
        tracing(NO_SERVERS, SETTINGS, applications=Applications.ALL),
    ):
        pytest.fail("it is not attached")
    assert happened == ["all calls", "started", "ended", "closed"]


def test_what_fails_in_between_ends_the_tracer_too(happened: list[str]) -> None:
    def attached(_tracer: object) -> None:
        raise QjouleError("cannot start the program")

    with (
        pytest.raises(QjouleError, match="the program"),
        tracing(NO_SERVERS, SETTINGS, applications=Applications.ALL, attached=attached),
    ):
        pytest.fail("its program does not run")
    assert happened == ["all calls", "started", "attached", "ended", "closed"]
