# SPDX-License-Identifier: Apache-2.0
"""Live equals offline for client tags: `top` and `attribute` give each value the same sums."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import fake_tracer as ft
from fake_tracer import BEGIN_NS, MS, block
from qjoule.contract import SAID_UNKNOWN, AttachMode, Block, Command, Mode, OwnerKind
from qjoule.contract import SessionEvent as Event
from qjoule.engine import live_groups
from qjoule.engine.attribute import attribute
from qjoule.engine.keys import selection
from qjoule.engine.live_groups import NOT_BY_TAG, PER_SERVER, per_tag
from qjoule.engine.live_owners import LiveNames
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.metrics.interval import Tagged, tagged_of
from qjoule.model.labels import FORGOTTEN_VALUES
from qjoule.model.result import Attribution
from qjoule.servers import registry
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.stream.record import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter

WINDOW_NS = 20 * MS
SERVER = "postgres:5432"
SHAPES = (b"select one", b"select two")
#: By hash, in place of a shape: the tags that queries carry.
SAID = {
    0xA1: b"k='said'",
    0xA2: b"k='said',j='other'",
    0xA3: b"j='other'",
    0xA4: b"k='a%20b'",
    0xA5: b"no tags",
}
NAMES = (b"k=named", b"k=named,j=named", b"psql", b"j=7")
SETS = (*(b"set application_name = '%s'" % name for name in NAMES), b"reset application_name")


@dataclass(frozen=True)
class Step:
    """A query, or an event of a session before the next one."""

    session: int
    event: Event | None = None
    text: bytes = b""
    shape: int = 1
    said: int = 0
    cpu_ns: int = 1000


SESSIONS = st.integers(1, 3)
QUERIES = st.builds(
    Step,
    SESSIONS,
    shape=st.integers(1, len(SHAPES)),
    said=st.sampled_from([0, SAID_UNKNOWN, *SAID]),
    cpu_ns=st.integers(1, 100_000),
)
EVENTS = st.one_of(
    st.builds(
        lambda session, name: Step(
            session, Event.OPEN, b"\0\0\0\x40\0\x03\0\0user\0a\0application_name\0%s\0\0" % name
        ),
        SESSIONS,
        st.sampled_from(NAMES),
    ),
    st.builds(Step, SESSIONS, st.just(Event.SETS), st.sampled_from(SETS)),
    st.builds(Step, SESSIONS, st.just(Event.KEPT)),
    st.builds(Step, SESSIONS, st.just(Event.MET)),
)


def _opened_first(windows: list[list[Step]]) -> list[list[Step]]:
    """A session's login is the first that is recorded of it, if it is recorded."""
    met: set[int] = set()
    recorded: list[list[Step]] = []
    for steps in windows:
        recorded.append([])
        for step in steps:
            if step.event is not Event.OPEN or step.session not in met:
                recorded[-1].append(step)
            met.add(step.session)
    return recorded


STEPS = st.lists(st.one_of(QUERIES, QUERIES, EVENTS), max_size=9)
WINDOWS = st.lists(STEPS, min_size=3, max_size=6).map(_opened_first)


def _texts() -> Iterator[bytes]:
    for number, text in enumerate(SHAPES, 1):
        yield ft.text(number, text, dialect=registry.dialect("postgres"))
    for number, text in SAID.items():
        yield ft.text(number, text, dialect=registry.dialect("tags"))


def _event(step: Step, t_ns: int, naming: int) -> bytes:
    fields = {"session": step.session, "t_ns": t_ns, "naming": naming, "event": step.event}
    fields |= {"server": 1, "server_kind": registry.kind_of("postgres")}
    fields["text_bytes"] = len(step.text)
    return block(Block.SESSION, fields, text=step.text)


def _timed(windows: list[list[Step]]) -> Iterator[tuple[int, list[tuple[int, Step]]]]:
    """Each window's end, and its steps one after the other."""
    for number, steps in enumerate(windows):
        begin_ns = BEGIN_NS + number * WINDOW_NS
        yield begin_ns + WINDOW_NS, [(begin_ns + at * MS, step) for at, step in enumerate(steps)]


def _recorded(windows: list[list[Step]]) -> Iterator[bytes]:
    yield ft.head(mode=Mode.RECORD)
    yield from _texts()
    query = 0
    for number, (end_ns, steps) in enumerate(_timed(windows)):
        for t_ns, step in steps:
            if step.event is not None:
                yield _event(step, t_ns, 0)
                continue
            query += 1
            ran: dict[str, Any] = {"pid": 7, "tgid": 7, "server": 1, "query": query}
            segment = {"t0_ns": t_ns, "t1_ns": t_ns + step.cpu_ns, "owner_kind": OwnerKind.QUERY}
            yield block(Block.SEGMENT, ran | segment)
            called = {"begin_ns": t_ns, "end_ns": t_ns + step.cpu_ns, "executions": 1}
            identity = {"session": step.session, "shape": step.shape, "tags": step.said}
            how = {"attach_mode": AttachMode.SOCKET, "command": Command.QUERY}
            yield block(Block.QUERY, ran | called | identity | how)
        yield ft.energy(end_ns, (number + 1) * 1000, number + 1)
        yield ft.flush(end_ns)
    yield ft.end(end_ns)


def _live(windows: list[list[Step]]) -> Iterator[bytes]:
    yield ft.head(mode=Mode.LIVE)
    yield from _texts()
    namings: dict[int, int] = {}
    events = 0
    for number, (end_ns, steps) in enumerate(_timed(windows)):
        sums: Counter[tuple[int, int, int]] = Counter()
        calls: Counter[tuple[int, int, int]] = Counter()
        for t_ns, step in steps:
            if step.event is not None:
                events += 1
                namings[step.session] = events
                yield _event(step, t_ns, events)
                continue
            key = step.shape, step.said, namings.get(step.session, 0)
            sums[key] += step.cpu_ns
            calls[key] += 1
        yield ft.energy(end_ns, (number + 1) * 1000, number + 1)
        span = {"t0_ns": end_ns - WINDOW_NS, "t1_ns": end_ns, "server": 1}
        rows = [
            span
            | {"owner_kind": OwnerKind.QUERY, "cpu_ns": cpu_ns, "calls": calls[shape, tags, naming]}
            | {"shape": shape, "tags": tags, "naming": naming}
            for (shape, tags, naming), cpu_ns in sums.items()
        ]
        if rows:
            yield block(Block.AGGREGATE, *rows)
    yield ft.end(end_ns)


def _attributed(windows: list[list[Step]], by: str, *where: str) -> Attribution:
    with TemporaryDirectory() as directory:
        server = Server(id=1, kind="postgres", name=SERVER, attach_mode="socket")
        stream = Stream(io.BytesIO(b"".join(_recorded(windows))))
        context = ft.context(Meta(servers=(server,)), client_tags=True)
        record(stream, TraceWriter(Path(directory) / "t"), context)
        return attribute(Trace(Path(directory) / "t"), tuple(by.split(",")), where=selection(where))


def _source(stream: bytes, **options: Any) -> StreamSource:
    blocks, meta = (
        Stream(io.BytesIO(stream)),
        Meta(servers=(Server(1, SERVER, attach_mode="socket"),)),
    )
    return StreamSource(blocks, ft.context(meta, client_tags=True), LiveOptions(**options))


def _snapshots(stream: bytes, by: str, *where: str, interval_s: float = 0.05) -> list[Snapshot]:
    source = _source(stream, where=selection(where))
    return list(source.snapshots(Controls(interval_s, by)))


def _sums(result: Attribution) -> dict[tuple[tuple[str, str], ...], tuple[int, int, str, str]]:
    return {
        tuple(row.keys.items()): (row.calls, row.cpu_ns, row.attach_mode, row.server)
        for row in result.rows
        if row.cpu_ns
    }


@given(
    WINDOWS,
    st.sampled_from(["tag:k", "tag:j", "fingerprint", "server"]),
    st.sampled_from([0.02, 0.05, 3.0]),
    st.sampled_from([(), ("tag:k=said",), ("tag:k=named", "tag:k=(none)", "tag:j=7")]),
)
@example([[], [Step(1, said=0xA2)], []], "tag:j", 0.05, ("tag:k=said", "tag:j=other"))
def test_live_sums_are_those_of_a_recording(
    windows: list[list[Step]], by: str, interval_s: float, where: tuple[str, ...]
) -> None:
    snapshots = _snapshots(b"".join(_live(windows)), by, *where, interval_s=interval_s)
    assert _sums(snapshots[-1].total) == _sums(_attributed(windows, by, *where))


def _by_value(stream: bytes, key: str, interval_s: float = 0.05) -> Counter[Tagged]:
    """Calls, as the agent adds them up: by value and statement, over all intervals."""
    by = per_tag(key)
    source = _source(stream, groups=(PER_SERVER, by))
    calls: Counter[Tagged] = Counter()
    controls = Controls(interval_s, PER_SERVER, totals=False, also=(by,))
    for snapshot in source.snapshots(controls):
        assert snapshot.groups == (PER_SERVER, by)
        for tagged, query in tagged_of(snapshot.also[by]).items():
            calls[tagged] += query.amounts.calls
    return calls


@given(WINDOWS, st.sampled_from(["k", "j"]), st.sampled_from([0.02, 0.05, 3.0]))
def test_statements_by_value_have_what_a_recording_gives_them(
    windows: list[list[Step]], key: str, interval_s: float
) -> None:
    calls_by_tag = _by_value(b"".join(_live(windows)), key, interval_s)
    recorded = _attributed(windows, f"tag:{key},fingerprint")
    expected = {(row.keys[f"tag:{key}"], row.keys["fingerprint"]): row for row in recorded.rows}
    calls = {
        (tagged.value, tagged.shape.fingerprint): count for tagged, count in calls_by_tag.items()
    }
    assert calls == {name: row.calls for name, row in expected.items()}
    assert {tagged.tag for tagged in calls_by_tag} <= {key}
    assert {tagged.shape.server for tagged in calls_by_tag} <= {SERVER}


def test_forgotten_statements_leave_their_values(monkeypatch: Any) -> None:
    monkeypatch.setattr(live_groups, "MAX_VALUES", 10)
    names = LiveNames(lambda shape: (str(shape), "x"), str, str, str)
    groups = live_groups.LiveGroups(names, per_tag("k"))
    for value in range(10):
        for shape in (1, 2):
            groups.numbers([(OwnerKind.QUERY, shape, 1, 0, 0, 0)], [{"k": str(value)}])
    labels = groups.index.labels
    goes = np.array([dict(label.keys)["tag:k"] != "3" for label in labels])
    groups.forget(goes)
    assert groups._values == {"3"}
    values_left = {dict(label.keys)["tag:k"] for label in groups.index.labels}
    assert values_left == {"3", FORGOTTEN_VALUES}
    assert not any(
        groups.may_forget(label)
        for label in groups.index.labels
        if dict(label.keys)["tag:k"] != "3"
    )


def _row(window: int, **fields: int) -> bytes:
    end_ns = BEGIN_NS + (window + 1) * WINDOW_NS
    span = {"t0_ns": end_ns - WINDOW_NS, "t1_ns": end_ns, "server": 1, "cpu_ns": 1000, "calls": 1}
    sums = block(Block.AGGREGATE, span | {"owner_kind": OwnerKind.QUERY} | fields)
    return ft.energy(end_ns, (window + 1) * 1000, window + 1) + sums


def test_rows_without_room_for_their_tags_count_under_no_value() -> None:
    rows = _row(0, shape=1, tags=0xA1)
    rows += _row(1, shape=1, tags=SAID_UNKNOWN, naming=SAID_UNKNOWN) + _row(2, shape=1)
    stream = ft.head(mode=Mode.LIVE) + b"".join(_texts()) + rows + ft.end(BEGIN_NS + 4 * WINDOW_NS)
    calls = {row.keys["tag:k"]: row.calls for row in _snapshots(stream, "tag:k")[-1].total.rows}
    assert calls == {"said": 1, NOT_BY_TAG: 1, "(none)": 1}


def test_a_bounded_number_of_values_have_groups(monkeypatch: Any) -> None:
    """A client that sends new tags each time fills the groups; earlier values keep theirs."""
    monkeypatch.setattr(live_groups, "MAX_VALUES", 10)
    stream = [ft.head(mode=Mode.LIVE), *_texts()]
    for window in range(100):
        new = b"k='new%d'" % window
        stream.append(ft.text(0xB00 + window, new, dialect=registry.dialect("tags")))
        stream.append(_row(window, shape=1, tags=0xA1 if window % 2 == 0 else 0xB00 + window))
    stream.append(ft.end(BEGIN_NS + 101 * WINDOW_NS))
    total = _snapshots(b"".join(stream), "tag:k", interval_s=10)[-1].total
    calls = {row.keys["tag:k"]: row.calls for row in total.rows}
    assert calls.pop("said") == 50
    assert calls.pop("other") == 50 - 9
    assert len(calls) == 9
    statements = _by_value(b"".join(stream), "k", interval_s=10)
    assert statements.total() == 100 and len(statements) == 11
