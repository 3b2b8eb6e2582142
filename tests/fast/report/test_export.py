# SPDX-License-Identifier: Apache-2.0
"""Joules as files of other tools: all of a file add up to the table's to the nanojoule, whatever
was sampled, and names and statements of strangers are only text in it.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
)

import attribute_trace as hand
from fake_attribution import attribution, query_row
from otlp_receiver import Values, of_otlp
from proto_reader import PERFETTO, PPROF, read
from qjoule.cli import cli
from qjoule.engine.attribute import attribute
from qjoule.engine.flame import Flame
from qjoule.engine.stacks import RowStacks
from qjoule.export.otlp import otlp_profiles
from qjoule.export.pprof import pprof, pprof_message, read_pprof
from qjoule.export.profile import Profile, samples_of, types_of
from qjoule.export.speedscope import speedscope
from qjoule.export.timeline import query_slices
from qjoule.reporters.labels import FIXED_NAMES
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.meta import Server
from qjoule.trace.reader import Trace
from stacked_trace import write_stacked_trace

KINDS = {"mariadb:3306": "mariadb"}
UNIX_NS = 1_795_000_000_000_000_000


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stacked_trace(tmp_path_factory.mktemp("export") / "shop.qjoule")


def profile(flame: Flame, *notes: str) -> Profile:
    types = types_of(flame.result)
    samples = tuple(samples_of(flame.rows, KINDS, types, stacks=bool(flame.samples)))
    return Profile("shop", "db1", UNIX_NS, 10**9, notes, types, samples)


def flame_of(*rows: RowStacks, grade: str = "measured") -> Flame:
    result = attribution(tuple(row_stacks.row for row_stacks in rows), {"idle": 5}, grade=grade)
    idle = RowStacks(result.fixed[0], Counter())
    samples = sum(row_stacks.count for row_stacks in rows)
    return Flame(result, (*rows, idle), samples, samples)


def of_pprof(content: bytes) -> tuple[list[tuple[str, str]], Values]:
    message = read(PPROF, "Profile", gzip.decompress(content))
    text = message.string_table
    assert text[0] == "" and len(set(text)) == len(text)
    names = {function.id: text[function.name] for function in message.function}
    frames = {location.id: names[location.line[0].function_id] for location in message.location}
    values: Values = defaultdict(lambda: [0] * len(message.sample_type))
    for sample in message.sample:
        stack = tuple(frames[at] for at in reversed(sample.location_id))
        labels = tuple((text[label.key], text[label.str]) for label in sample.label)
        assert len(sample.value) == len(message.sample_type)
        values[stack, labels] = [
            a + b for a, b in zip(values[stack, labels], sample.value, strict=True)
        ]
    return [
        (text[value_type.type], text[value_type.unit]) for value_type in message.sample_type
    ], values


def total(values: Mapping[Any, list[int]], at: int = -1) -> int:
    return sum(value[at] for value in values.values())


# ---- every total, whatever the names -------------------------------------------------------------

#: `Symbols.name` has made names of functions safe; statements are UTF-8.
NAMES = st.text(max_size=20) | st.sampled_from(["", "a;b", "\0", '"', "\u202e", "Ω" * 300, "\n# x"])
TEXTS, FUNCTIONS = (
    NAMES.map(lambda name: name.encode("utf-8", "replace").decode()),
    NAMES.map(sanitise),
)
STACKS = st.dictionaries(
    st.lists(FUNCTIONS, max_size=4).map(tuple), st.integers(1, 1000), max_size=5
)
ROWS = st.lists(
    st.tuples(TEXTS, st.integers(-(10**6), 10**17), st.integers(0, 10**17), STACKS), max_size=4
)


@given(ROWS)
def test_all_formats_have_the_rows_joules_and_time(
    rows: list[tuple[str, int, int, dict[tuple[str, ...], int]]],
) -> None:
    flame = flame_of(
        *(
            RowStacks(
                query_row(
                    *(energy_nj, shape),
                    keys={"fingerprint": f"{number:016x}", "database": shape, "tag:é;": shape},
                    cpu_ns=cpu_ns,
                ),
                Counter(stacks),
            )
            for number, (shape, energy_nj, cpu_ns, stacks) in enumerate(rows)
        )
    )
    energy_nj = sum(row_stacks.row.energy_nj for row_stacks in flame.rows)
    cpu_ns = sum(row_stacks.row.cpu_ns for row_stacks in flame.rows)
    profiled = profile(flame, *(sanitise(shape) for shape, *_ in rows))
    types, values = of_pprof(pprof(profiled))
    assert types == [("cpu", "nanoseconds"), ("energy", "nanojoules")]
    assert (total(values, 0), total(values)) == (cpu_ns, energy_nj)
    assert read_pprof(pprof_message(profiled), profiled.host) == profiled
    of_types = of_otlp(otlp_profiles(profiled))
    assert list(of_types) == ["energy", "cpu"]
    assert sum(map(sum, of_types["energy"].values())) == energy_nj
    assert sum(map(sum, of_types["cpu"].values())) == cpu_ns
    document = json.loads(speedscope(profiled))
    drawn = [max(nj, 0) for row_stacks in flame.rows for _, nj in row_stacks.energies_nj()]
    assert [drawn_profile["endValue"] for drawn_profile in document["profiles"]] == [
        sum(drawn),
        cpu_ns,
    ]
    for drawn_profile in document["profiles"]:
        assert sum(drawn_profile["weights"]) == drawn_profile["endValue"]
        frames = {at for stack in drawn_profile["samples"] for at in stack}
        assert frames <= set(range(len(document["shared"]["frames"])))


@given(st.binary(max_size=60), st.integers(0, 400))
def test_what_is_no_profile_is_refused_or_read(content: bytes, at: int) -> None:
    encoded = pprof_message(
        profile(flame_of(RowStacks(query_row(7), Counter({("f",): 1}))), "note")
    )
    for damaged in (content, encoded[: at % len(encoded)], encoded[:at] + content + encoded[at:]):
        with suppress(ValueError, LookupError):
            read_pprof(damaged, "db1")


def test_the_same_profile_gives_the_same_bytes() -> None:
    flame = flame_of(RowStacks(query_row(10**9), Counter({("main", "f"): 2, ("main",): 1})))
    for write in (pprof, otlp_profiles, speedscope):
        assert write(profile(flame)) == write(profile(flame))


def test_a_sample_has_its_query_as_labels() -> None:
    keys = {"fingerprint": "f0", "server": "mariadb:3306", "database": "shop", "tag:endpoint": "/a"}
    row = query_row(7, "SELECT a FROM orders WHERE id = ?", keys=keys)
    flame = flame_of(RowStacks(row, Counter({("main", "read"): 1})))
    labels = {
        "qjoule.part": "queries",
        "qjoule.server": "mariadb:3306",
        "qjoule.fingerprint": "f0",
        "qjoule.tag.endpoint": "/a",
        "db.system.name": "mariadb",
        "db.namespace": "shop",
        "db.query.summary": "SELECT orders",
    }
    _, values = of_pprof(pprof(profile(flame)))
    by_labels = {
        tuple(sorted(sample_labels)): (stack, value)
        for (stack, sample_labels), value in values.items()
    }
    stack, value = by_labels[tuple(sorted(labels.items()))]
    assert stack[0] == "queries" and stack[-2:] == ("main", "read")
    assert value == [row.cpu_ns, 7]
    assert dict(next(iter(of_otlp(otlp_profiles(profile(flame)))["energy"]))[1]) == labels


def test_what_is_not_known_has_no_label_and_no_value() -> None:
    unknown = query_row(
        10**9, "(text lost)", keys={"fingerprint": "(text lost)", "database": "(none)"}
    )
    flame = flame_of(RowStacks(unknown, Counter()), grade="none")
    types, values = of_pprof(pprof(profile(flame)))
    assert types == [("cpu", "nanoseconds")], "energy is not known, and not 0"
    (_, labels), _ = next(iter(values.items()))
    assert dict(labels).keys() == {"qjoule.part", "qjoule.server", "db.system.name"}
    assert list(of_otlp(otlp_profiles(profile(flame)))) == ["cpu"]


def test_a_residual_below_0_is_in_the_files_that_can_hold_it() -> None:
    row = replace(query_row(0), kind="residual", energy_nj=-3, keys={}, cpu_ns=0)
    flame = flame_of(RowStacks(row, Counter()))
    assert total(of_pprof(pprof(profile(flame)))[1]) == 2
    assert json.loads(speedscope(profile(flame)))["profiles"][0]["endValue"] == 5


# ---- the command ---------------------------------------------------------------------------------


def run(*arguments: str | Path) -> tuple[int, bytes, str]:
    result = CliRunner().invoke(cli, ["export", *map(str, arguments)])
    return result.exit_code, result.stdout_bytes, f"{result.stderr}{result.exception or ''}"


@pytest.mark.parametrize("by", [None, "query", "database,user", "session,tag:endpoint"])
@pytest.mark.parametrize("idle", ["separate", "even", "proportional"])
def test_files_have_what_was_measured(trace: Path, by: str | None, idle: Any) -> None:
    options = ("--idle", idle, *(("--by", by) if by else ()))
    keys = tuple((by or "fingerprint,server,database").split(","))
    wanted = attribute(Trace(trace), keys, idle)
    code, content, messages = run("pprof", trace, *options)
    assert code == 0
    assert "8 samples, 75.0% of them to their thread's entry" in messages
    values = of_pprof(content)[1]
    assert total(values) == wanted.main.measured_nj == 3 * 10**9
    assert total(values, 0) == sum(row.cpu_ns for row in (*wanted.rows, *wanted.fixed))
    by_part: Counter[str] = Counter()
    for (_, labels), value in values.items():
        by_part[dict(labels)["qjoule.part"]] += value[1]
    assert by_part == Counter({part: nj for part, nj in wanted.main.parts_nj.items() if nj})


def test_a_trace_without_stacks_has_a_frame_for_each_row(tmp_path: Path) -> None:
    path = hand.write(tmp_path / "t")
    code, content, messages = run("pprof", path)
    assert code == 0
    assert "no stacks: record it with --stacks" in messages
    values = of_pprof(content)[1]
    assert total(values) == 3 * 10**9
    assert ("queries", "database=shop  select a") in {stack for stack, _ in values}
    assert ("idle",) in {stack for stack, _ in values}


def test_notes_and_times_are_in_the_file(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "shop.pb.gz"
    assert run("pprof", trace, "-o", output)[:2] == (0, b"")
    message = read(PPROF, "Profile", gzip.decompress(output.read_bytes()))
    assert message.string_table[message.comment[0]] == "simulated, idle separate, loss none"
    assert (message.time_nanos, message.duration_nanos) == (hand.BEGIN_NS, 40 * hand.MS)
    content = run("otlp", trace)[1]
    request = ExportProfilesServiceRequest.FromString(content)
    notes = request.dictionary.attribute_table[1].value.array_value.values
    assert notes[0].string_value == "simulated, idle separate, loss none"
    assert request.dictionary.string_table[request.dictionary.attribute_table[1].key_strindex] == (
        "pprof.profile.comment"
    )


def test_nothing_binary_goes_to_a_terminal(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qjoule.commands.export.sys.stdout.isatty", lambda: True, raising=False)
    assert "perfetto has every query" in run("perfetto", trace, "--by", "user")[2]


# ---- Perfetto ------------------------------------------------------------------------------------


def slices(content: bytes) -> tuple[dict[int, Any], list[dict[str, Any]], dict[str, list[Any]]]:
    """Tracks by number; slices with `track`, `begin`, `end`, `name` and what they show; counters by
    name: times and values."""
    message = read(PERFETTO, "Trace", content)
    texts: dict[str, dict[int, str]] = {"event_names": {}, "names": {}, "values": {}}
    tracks: dict[int, Any] = {}
    begun: dict[int, list[dict[str, Any]]] = defaultdict(list)
    done: list[dict[str, Any]] = []
    counters: dict[str, list[Any]] = defaultdict(list)
    for packet in message.packet:
        for field, table in texts.items():
            for interned in getattr(packet.interned_data, field):
                assert table.setdefault(interned.iid, interned.text) == interned.text
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        event = packet.track_event
        if event.type == 4:
            at = packet.timestamp, event.double_counter_value
            counters[tracks[event.track_uuid].name].append(at)
        elif event.type == 1:
            shown = {
                texts["names"][annotation.name_iid]: texts["values"].get(
                    annotation.string_value_iid, annotation.int_value
                )
                for annotation in event.debug_annotations
            }
            name = texts["event_names"][event.name_iid]
            about = {"track": event.track_uuid, "begin": packet.timestamp, "name": name}
            begun[event.track_uuid].append(about | shown)
        elif event.type == 2:
            done.append({**begun[event.track_uuid].pop(), "end": packet.timestamp})
    assert not any(begun.values())
    return tracks, done, counters


def test_every_query_is_a_slice_with_its_joules(trace: Path) -> None:
    code, content, _ = run("perfetto", trace)
    assert code == 0
    tracks, drawn_slices, counters = slices(content)
    by_query = {slice_["qjoule.query"]: slice_ for slice_ in drawn_slices}
    rows = attribute(Trace(trace), ("query",)).rows
    assert {
        str(number): slice_["qjoule.energy_nj"]
        for number, slice_ in by_query.items()
        if number != 4
    } == {row.keys["query"]: row.energy_nj for row in rows}
    first = by_query[1]
    assert (first["name"], first["db.query.text"], first["db.namespace"]) == (
        "SELECT",
        "select a",
        "shop",
    )
    assert (first["begin"], first["end"]) == (hand.at(0), hand.at(12))
    assert tracks[by_query[2]["track"]].name == "session 7"
    assert tracks[tracks[by_query[2]["track"]].parent_uuid].name == "shop-db"
    assert (by_query[4]["name"], "qjoule.energy_nj" in by_query[4]) == ("connect", False)
    parts = attribute(Trace(trace)).main.parts_nj
    assert {FIXED_NAMES.get(part, part) for part, nj in parts.items() if nj} == counters.keys()
    for name, readings in counters.items():
        times, values = zip(*readings, strict=True)
        energies = (np.diff(times) * values[:-1]).round()
        assert energies.sum() == next(
            nj for part, nj in parts.items() if FIXED_NAMES.get(part, part) == name
        )
        assert (times[0], times[-1], values[-1]) == (hand.at(0), hand.at(40), 0.0)


def test_what_where_leaves_out_is_no_slice(trace: Path) -> None:
    drawn_slices = slices(run("perfetto", trace, "--where", "user=ann")[1])[1]
    assert [slice_["qjoule.query"] for slice_ in drawn_slices] == [2]


def test_slices_of_a_lane_overlap_only_as_parts_of_a_query(tmp_path: Path) -> None:
    inside = {"session": 7, "parent": 1}
    queries = [
        (0, 20, 1, "aaaa", "query", {"session": 7}),
        (5, 15, 2, "bbbb", "query", {"session": 7}),  # its client did not wait
        (2, 4, 3, "bbbb", "child", inside),
        (4, 9, 4, "bbbb", "child", inside),
        (18, 22, 5, "bbbb", "child", inside),  # ends late: clocks of two threads
        (20, 30, 6, "aaaa", "query", {"session": 7}),
        (30, 30, 7, "aaaa", "query", {"session": 7}),
        (0, 30, 8, "aaaa", "query", {"session": 8}),
    ]
    path = hand.write(tmp_path / "t", queries=[hand.query(*query) for query in queries])
    lanes = {slice_.record["query"]: slice_.lane for slice_ in query_slices(Trace(path))}
    assert {query: lane.number for query, lane in lanes.items()} == {
        **{1: 0, 3: 0, 4: 0, 6: 0, 7: 0, 8: 0},
        **{2: 1, 5: 1},
    }
    assert len({(lane.session) for lane in lanes.values()}) == 2
    tracks, drawn_slices, _ = slices(run("perfetto", path)[1])
    assert len(drawn_slices) == len(queries)
    assert sorted(track.name for track in tracks.values() if track.name.startswith("session")) == [
        *["session 7"] * 2,
        "session 8",
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(0, 1), st.booleans()),
        max_size=12,
    )
)
def test_lanes_nest(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int, bool]]
) -> None:
    queries = [
        hand.query(
            *(begin, begin + length, number + 1, "aaaa", "child" if part else "query"),
            {"session": session, "parent": 1 if part else None},
        )
        for number, (begin, length, session, part) in enumerate(rows)
    ]
    path = hand.write(tmp_path_factory.mktemp("lanes") / "t", queries=queries)
    by_lane = defaultdict(list)
    for slice_ in query_slices(Trace(path)):
        by_lane[slice_.lane].append(slice_.record)
    assert sum(map(len, by_lane.values())) == len(rows)
    for records in by_lane.values():
        for at, after in enumerate(records):
            for before in records[:at]:
                apart = before["end_ns"] <= after["begin_ns"]
                assert apart or (after["parent"] and after["end_ns"] <= before["end_ns"])


def test_statements_and_names_of_strangers_are_text(tmp_path: Path) -> None:
    evil = "select '\x1b[31m\u202e' --\n</script>\0"
    shapes = [{"shape": 1, "fingerprint": "aaaa", "text": evil}]
    servers = (Server(1, "shop\n\x1b]0;x\a", "mysql"),)
    path = hand.write(tmp_path / "t", shapes=shapes, meta={"servers": servers})
    for form in ("pprof", "speedscope", "perfetto", "otlp"):
        code, content, _ = run(form, path)
        assert code == 0
        text = gzip.decompress(content) if form == "pprof" else content
        assert b"\x1b[" not in text and b"\x1b]" not in text
        assert "\u202e".encode() not in text
