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
from stacked_trace import made

KINDS = {"mariadb:3306": "mariadb"}
UNIX_NS = 1_795_000_000_000_000_000


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("export") / "shop.qjoule")


def profile(found: Flame, *notes: str) -> Profile:
    types = types_of(found.result)
    samples = tuple(samples_of(found.rows, KINDS, types, stacks=bool(found.samples)))
    return Profile("shop", "db1", UNIX_NS, 10**9, notes, types, samples)


def flame_of(*rows: RowStacks, grade: str = "measured") -> Flame:
    result = attribution(tuple(one.row for one in rows), {"idle": 5}, grade=grade)
    idle = RowStacks(result.fixed[0], Counter())
    samples = sum(one.count for one in rows)
    return Flame(result, (*rows, idle), samples, samples)


def of_pprof(content: bytes) -> tuple[list[tuple[str, str]], Values]:
    found = read(PPROF, "Profile", gzip.decompress(content))
    text = found.string_table
    assert text[0] == "" and len(set(text)) == len(text)
    names = {one.id: text[one.name] for one in found.function}
    frames = {one.id: names[one.line[0].function_id] for one in found.location}
    values: Values = defaultdict(lambda: [0] * len(found.sample_type))
    for sample in found.sample:
        stack = tuple(frames[at] for at in reversed(sample.location_id))
        labels = tuple((text[one.key], text[one.str]) for one in sample.label)
        assert len(sample.value) == len(found.sample_type)
        values[stack, labels] = [
            a + b for a, b in zip(values[stack, labels], sample.value, strict=True)
        ]
    return [(text[one.type], text[one.unit]) for one in found.sample_type], values


def total(values: Mapping[Any, list[int]], at: int = -1) -> int:
    return sum(one[at] for one in values.values())


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
    found = flame_of(
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
    energy_nj = sum(one.row.energy_nj for one in found.rows)
    cpu_ns = sum(one.row.cpu_ns for one in found.rows)
    made = profile(found, *(sanitise(shape) for shape, *_ in rows))
    types, values = of_pprof(pprof(made))
    assert types == [("cpu", "nanoseconds"), ("energy", "nanojoules")]
    assert (total(values, 0), total(values)) == (cpu_ns, energy_nj)
    assert read_pprof(pprof_message(made), made.host) == made
    of_types = of_otlp(otlp_profiles(made))
    assert list(of_types) == ["energy", "cpu"]
    assert sum(map(sum, of_types["energy"].values())) == energy_nj
    assert sum(map(sum, of_types["cpu"].values())) == cpu_ns
    document = json.loads(speedscope(made))
    drawn = [max(nj, 0) for one in found.rows for _, nj in one.energies_nj()]
    assert [one["endValue"] for one in document["profiles"]] == [sum(drawn), cpu_ns]
    for one in document["profiles"]:
        assert sum(one["weights"]) == one["endValue"]
        frames = {at for stack in one["samples"] for at in stack}
        assert frames <= set(range(len(document["shared"]["frames"])))


@given(st.binary(max_size=60), st.integers(0, 400))
def test_what_is_no_profile_is_refused_or_read(content: bytes, at: int) -> None:
    whole = pprof_message(profile(flame_of(RowStacks(query_row(7), Counter({("f",): 1}))), "note"))
    for one in (content, whole[: at % len(whole)], whole[:at] + content + whole[at:]):
        with suppress(ValueError, LookupError):
            read_pprof(one, "db1")


def test_the_same_profile_gives_the_same_bytes() -> None:
    found = flame_of(RowStacks(query_row(10**9), Counter({("main", "f"): 2, ("main",): 1})))
    for write in (pprof, otlp_profiles, speedscope):
        assert write(profile(found)) == write(profile(found))


def test_a_sample_has_its_query_as_labels() -> None:
    keys = {"fingerprint": "f0", "server": "mariadb:3306", "database": "shop", "tag:endpoint": "/a"}
    row = query_row(7, "SELECT a FROM orders WHERE id = ?", keys=keys)
    found = flame_of(RowStacks(row, Counter({("main", "read"): 1})))
    labels = {
        "qjoule.part": "queries",
        "qjoule.server": "mariadb:3306",
        "qjoule.fingerprint": "f0",
        "qjoule.tag.endpoint": "/a",
        "db.system.name": "mariadb",
        "db.namespace": "shop",
        "db.query.summary": "SELECT orders",
    }
    _, values = of_pprof(pprof(profile(found)))
    by_labels = {tuple(sorted(found)): (stack, value) for (stack, found), value in values.items()}
    stack, value = by_labels[tuple(sorted(labels.items()))]
    assert stack[0] == "queries" and stack[-2:] == ("main", "read")
    assert value == [row.cpu_ns, 7]
    assert dict(next(iter(of_otlp(otlp_profiles(profile(found)))["energy"]))[1]) == labels


def test_what_is_not_known_has_no_label_and_no_value() -> None:
    unknown = query_row(
        10**9, "(text lost)", keys={"fingerprint": "(text lost)", "database": "(none)"}
    )
    found = flame_of(RowStacks(unknown, Counter()), grade="none")
    types, values = of_pprof(pprof(profile(found)))
    assert types == [("cpu", "nanoseconds")], "energy is not known, and not 0"
    (_, labels), _ = next(iter(values.items()))
    assert dict(labels).keys() == {"qjoule.part", "qjoule.server", "db.system.name"}
    assert list(of_otlp(otlp_profiles(profile(found)))) == ["cpu"]


def test_a_residual_below_0_is_in_the_files_that_can_hold_it() -> None:
    row = replace(query_row(0), kind="residual", energy_nj=-3, keys={}, cpu_ns=0)
    found = flame_of(RowStacks(row, Counter()))
    assert total(of_pprof(pprof(profile(found)))[1]) == 2
    assert json.loads(speedscope(profile(found)))["profiles"][0]["endValue"] == 5


# ---- the command ---------------------------------------------------------------------------------


def run(*words: str | Path) -> tuple[int, bytes, str]:
    found = CliRunner().invoke(cli, ["export", *map(str, words)])
    return found.exit_code, found.stdout_bytes, f"{found.stderr}{found.exception or ''}"


@pytest.mark.parametrize("by", [None, "query", "database,user", "session,tag:endpoint"])
@pytest.mark.parametrize("idle", ["separate", "even", "proportional"])
def test_files_have_what_was_measured(trace: Path, by: str | None, idle: Any) -> None:
    words = ("--idle", idle, *(("--by", by) if by else ()))
    keys = tuple((by or "fingerprint,server,database").split(","))
    wanted = attribute(Trace(trace), keys, idle)
    code, content, said = run("pprof", trace, *words)
    assert code == 0
    assert "8 samples, 75.0% of them to their thread's entry" in said
    values = of_pprof(content)[1]
    assert total(values) == wanted.main.measured_nj == 3 * 10**9
    assert total(values, 0) == sum(row.cpu_ns for row in (*wanted.rows, *wanted.fixed))
    by_part: Counter[str] = Counter()
    for (_, labels), one in values.items():
        by_part[dict(labels)["qjoule.part"]] += one[1]
    assert by_part == Counter({part: nj for part, nj in wanted.main.parts_nj.items() if nj})


def test_a_trace_without_stacks_has_a_frame_for_each_row(tmp_path: Path) -> None:
    path = hand.write(tmp_path / "t")
    code, content, said = run("pprof", path)
    assert code == 0
    assert "no stacks: record it with --stacks" in said
    values = of_pprof(content)[1]
    assert total(values) == 3 * 10**9
    assert ("queries", "database=shop  select a") in {stack for stack, _ in values}
    assert ("idle",) in {stack for stack, _ in values}


def test_notes_and_times_are_in_the_file(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "shop.pb.gz"
    assert run("pprof", trace, "-o", output)[:2] == (0, b"")
    found = read(PPROF, "Profile", gzip.decompress(output.read_bytes()))
    assert found.string_table[found.comment[0]] == "simulated, idle separate, loss none"
    assert (found.time_nanos, found.duration_nanos) == (hand.BEGIN_NS, 40 * hand.MS)
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
    found = read(PERFETTO, "Trace", content)
    texts: dict[str, dict[int, str]] = {"event_names": {}, "names": {}, "values": {}}
    tracks: dict[int, Any] = {}
    begun: dict[int, list[dict[str, Any]]] = defaultdict(list)
    done: list[dict[str, Any]] = []
    counters: dict[str, list[Any]] = defaultdict(list)
    for packet in found.packet:
        for field, table in texts.items():
            for one in getattr(packet.interned_data, field):
                assert table.setdefault(one.iid, one.text) == one.text
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        event = packet.track_event
        if event.type == 4:
            at = packet.timestamp, event.double_counter_value
            counters[tracks[event.track_uuid].name].append(at)
        elif event.type == 1:
            shown = {
                texts["names"][one.name_iid]: texts["values"].get(
                    one.string_value_iid, one.int_value
                )
                for one in event.debug_annotations
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
    tracks, found, counters = slices(content)
    by_query = {one["qjoule.query"]: one for one in found}
    rows = attribute(Trace(trace), ("query",)).rows
    assert {
        str(one): slice_["qjoule.energy_nj"] for one, slice_ in by_query.items() if one != 4
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
    found = slices(run("perfetto", trace, "--where", "user=ann")[1])[1]
    assert [one["qjoule.query"] for one in found] == [2]


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
    path = hand.write(tmp_path / "t", queries=[hand.query(*one) for one in queries])
    lanes = {one.record["query"]: one.lane for one in query_slices(Trace(path))}
    assert {query: lane.number for query, lane in lanes.items()} == {
        **{1: 0, 3: 0, 4: 0, 6: 0, 7: 0, 8: 0},
        **{2: 1, 5: 1},
    }
    assert len({(lane.session) for lane in lanes.values()}) == 2
    tracks, found, _ = slices(run("perfetto", path)[1])
    assert len(found) == len(queries)
    assert sorted(one.name for one in tracks.values() if one.name.startswith("session")) == [
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
    for one in query_slices(Trace(path)):
        by_lane[one.lane].append(one.record)
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
