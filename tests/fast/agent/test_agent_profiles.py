# SPDX-License-Identifier: Apache-2.0
"""The agent's profile of each minute: its joules, what it lacks and why, its way to a receiver."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
)

from fake_attribution import attribution, query_row
from otlp_receiver import notes_of, of_otlp, program, receiver
from qjoule.agent.config import load
from qjoule.commands.agent_profiles import MinuteProfiles, profile_of
from qjoule.engine.stacks import CUT, NO_SAMPLE, OTHER, Stack
from qjoule.errors import UsageError
from qjoule.export.pprof import pprof_message, read_pprof
from qjoule.export.profile import Profile
from qjoule.live import recent_stacks
from qjoule.live.recent_stacks import MINUTE_S, MOST_ROWS, WholeMinutes
from qjoule.live.sampled_stacks import NO_ROW, Stacks
from qjoule.metrics.exposition import page, unlabelled_gauge
from qjoule.metrics.http import Bounds
from qjoule.metrics.messages import Request
from qjoule.metrics.server import MetricsServer, ShownBytes
from qjoule.metrics.shared import Board, SnapshotBoard
from qjoule.model.result import Attribution
from qjoule.push.profiles import Profiles
from qjoule.snapshots import Snapshot
from qjoule.trace.meta import Server
from waiting import until

SERVER = Server(1, "mariadb:3306", "mariadb")
F, G = ("main", "f"), ("main", "g")


def interval(
    seconds: float, *rows: tuple[int, int, Counter[Stack]], lost: int = 0
) -> tuple[Attribution, Stacks]:
    """Each row: its energy (nJ), its CPU time (ns) and its samples."""
    table = attribution(
        tuple(
            query_row(
                *(energy_nj, f"select {number} from t"),
                keys={"fingerprint": f"{number:016x}", "server": "mariadb:3306"},
                cpu_ns=cpu_ns,
            )
            for number, (energy_nj, cpu_ns, _) in enumerate(rows)
        ),
        {"idle": 5},
        duration_s=seconds,
        loss={"stack": lost} if lost else {},
    )
    stacks = {
        row.identity: counts for row, (_, _, counts) in zip(table.rows, rows, strict=True) if counts
    }
    return table, stacks


def minute_of(*intervals: tuple[Attribution, Stacks], missing: tuple[str, ...] = ()) -> Profile:
    minutes = WholeMinutes(lambda: missing)
    profiled = [minutes.add("server,fingerprint", *interval_) for interval_ in intervals]
    assert not any(profiled[:-1])
    assert profiled[-1] is not None
    kinds = {SERVER.name: SERVER.kind}
    return profile_of(profiled[-1], intervals[-1][0], kinds, 19, 1_000.0)


INTERVALS = st.lists(
    st.tuples(
        st.sampled_from([1.0, 7.0, 10.1, 60.0]),
        st.lists(
            st.tuples(
                st.integers(0, 10**12),
                st.integers(0, 10**10),
                st.dictionaries(st.sampled_from([F, G, (CUT,)]), st.integers(1, 50)).map(Counter),
            ),
            max_size=3,
        ),
    ),
    max_size=40,
)


@given(INTERVALS)
def test_minutes_follow_each_other_and_have_the_rows_joules(
    given_: list[tuple[float, list[tuple[int, int, Counter[Stack]]]]],
) -> None:
    minutes = WholeMinutes()
    seconds, rows = 0.0, [(0, 0, 0)]
    for length, samples_of in given_:
        table, stacks = interval(length, *samples_of)
        seconds += length
        rows += [(*row[:2], row[2].total()) for row in samples_of]
        finished = minutes.add("server,fingerprint", table, stacks)
        assert (finished is not None) == (seconds >= MINUTE_S)
        if finished is not None:
            assert finished.seconds == seconds
            profile = profile_of(finished, table, {}, 19, 1_000.0)
            values = (sample.values for sample in profile.samples)
            assert [sum(column) for column in zip((0, 0), *values, strict=True)] == [
                sum(cpu_ns for _, cpu_ns, _ in rows),
                sum(energy_nj for energy_nj, _, _ in rows),
            ]
            assert sum(row_stacks.count for row_stacks in finished.rows.values()) == sum(
                n for _, _, n in rows
            )
            seconds, rows = 0.0, [(0, 0, 0)]


def test_a_statement_without_a_sample_is_a_frame_that_says_so() -> None:
    profile = minute_of(
        interval(60.0, (3 * 10**9, 10, Counter({F: 2, G: 1})), (10**9, 4, Counter()))
    )
    by_frame = {sample.frames[-1]: sample.values for sample in profile.samples}
    assert by_frame == {"f": (7, 2 * 10**9), "g": (3, 10**9), NO_SAMPLE: (4, 10**9)}
    assert "75.0% of 4 J are of statements that have a sample" in profile.notes
    assert "3 samples of statements, 19 per second of CPU time" in profile.notes
    assert (profile.began_unix_ns, profile.duration_ns) == (940 * 10**9, 60 * 10**9)
    labels = dict(profile.samples[0].labels)
    assert (labels["db.system.name"], labels["db.query.summary"]) == ("mariadb", "SELECT t")


def test_what_is_lost_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_stacks, "MOST_ROWS", 1)
    counts = Counter({F: 3, (CUT, "f"): 2, (OTHER,): 4})
    table, stacks = interval(60.0, (10, 1, counts), (2 * 10**9, 1, Counter({F: 7})), lost=5)
    minutes = WholeMinutes(lambda: ("no functions' names in mariadbd: it has no symbols",))
    finished = minutes.add("", table, {**stacks, NO_ROW: Counter({(): 6})}, 8)
    assert finished is not None
    assert finished.lost == 5 + 7 + 8
    notes = profile_of(finished, table, {}, 19, 1_000.0).notes
    for note in (
        "5 samples are lost: the kernel side had no room for them",
        "8 samples are lost: more came at once than are taken",
        f"7 samples are lost: their statements are beyond the {MOST_ROWS:,} that are kept",
        f"2 J are left out: of statements beyond the {MOST_ROWS:,} that are kept",
        "no functions' names in mariadbd: it has no symbols",
    ):
        assert note in notes
    text = "\n".join(notes)
    assert "\n6 samples are of no known statement: " in text
    assert f"\n4 samples are {OTHER}: " in text
    assert "\n2 samples are not followed to their thread's entry: " in text


def test_the_listener_shows_the_last_minute_once() -> None:
    board = SnapshotBoard()
    messages: list[str] = []
    profiles = MinuteProfiles(board, 19, messages.append)
    with listening(board) as ask:
        assert ask()[0] == 503, "no minute yet"
        table, stacks = interval(60.0, (7, 1, Counter({F: 1})))
        minutes = WholeMinutes()
        profiles.take(Snapshot(table, table, 1.0), [SERVER], 1_000.0)
        assert ask()[0] == 503
        recent = minutes.add("", table, stacks)
        profiles.take(Snapshot(table, table, 1.0, stacks=recent), [SERVER], 1_000.0)
        code, content, tag = ask()
        assert code == 200
        profile = read_pprof(content, "db1")
        assert [sample.values for sample in profile.samples] == [(1, 7)]
        assert ask(tag)[0] == 304
    assert not messages


Ask = Callable[..., tuple[int, bytes, str]]


@contextmanager
def listening(board: SnapshotBoard) -> Iterator[Ask]:
    """Asks for the code, the content and the tag."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        shown = {"/profile": ShownBytes(board, "application/octet-stream")}
        server = MetricsServer(listening, Board(), Bounds(), shown=shown)

        def ask(tag: str = "") -> tuple[int, bytes, str]:
            headers = {"if-none-match": tag} if tag else {}
            answer = server.respond(Request("/profile", headers, bare=False))
            return answer.code, answer.content, "".join(answer.headers).removeprefix("ETag: ")

        yield ask


def test_a_profile_that_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    board = SnapshotBoard()
    messages: list[str] = []
    monkeypatch.setattr("qjoule.metrics.shared.BYTES", 100)
    table, stacks = interval(60.0, (7, 1, Counter({F: 1})))
    recent = WholeMinutes().add("", table, stacks)
    MinuteProfiles(board, 19, messages.append).take(
        Snapshot(table, table, 1.0, stacks=recent), [SERVER], 1_000.0
    )
    assert board.read() is None
    assert messages == ["a minute's profile does not fit its bound: it is lost"]


# ---- the program that sends ----------------------------------------------------------------------


def sent(patch: pytest.MonkeyPatch, url: str, **settings: str) -> Profiles:
    for name, value in settings.items():
        patch.setenv(f"OTEL_EXPORTER_OTLP_PROFILES_{name}", value)
    return Profiles("db1", url)


def test_a_receiver_gets_the_joules_and_notes_of_the_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = minute_of(interval(60.0, (10**9 + 1, 10, Counter({F: 2, G: 1}))), missing=("so",))
    with receiver(200, 503, 307, Location="http://127.0.0.1:9/") as receives:
        profiles = sent(monkeypatch, receives.url, HEADERS="x-scope=a")
        began_s, received = profiles.read(pprof_message(profile))
        assert began_s == 940.0
        assert [profiles.send(received, began_s) for _ in range(3)] == [True, False, False]
    headers, content = receives.got[0]
    assert (headers["x-scope"], headers["content-type"]) == ("a", "application/x-protobuf")
    by_type = of_otlp(content)
    assert {
        kind: sum(sum(values) for values in stacks.values()) for kind, stacks in by_type.items()
    } == {
        "energy": 10**9 + 1,
        "cpu": 10,
    }
    (resource,) = ExportProfilesServiceRequest.FromString(content).resource_profiles
    about = {
        attribute.key: attribute.value.string_value for attribute in resource.resource.attributes
    }
    assert about == {"service.name": "qjoule", "host.name": "db1"}
    assert notes_of(content) == list(profile.notes)
    assert "so" in profile.notes


def test_the_program_sends_each_profile_beside_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = minute_of(interval(60.0, (7, 1, Counter({F: 1}))))
    with receiver() as receives:
        receives.page = page(
            [unlabelled_gauge("qjoule_last_interval_timestamp_seconds", "", 1234.5, "seconds")],
            openmetrics=True,
        )
        receives.profile = pprof_message(profile)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receives.url.removesuffix("/api"))
        monkeypatch.setenv("OTEL_PROFILES_EXPORTER", "otlp")
        with subprocess.Popen(program(7, receives.url)) as running:
            try:
                until(lambda: len(receives.got) >= 2)
            finally:
                running.kill()
    paths = {headers[":path"]: content for headers, content in receives.got}
    assert paths.keys() == {"/v1/metrics", "/v1development/profiles"}
    assert sum(map(sum, of_otlp(paths["/v1development/profiles"])["energy"].values())) == 7


@pytest.mark.parametrize(
    ("endpoint", "headers", "says"),
    [
        ("ftp://db1", "", "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT must be the receiver's URL"),
        ("http://db1:4318", "authorization=secret", "headers need https"),
    ],
)
def test_the_program_refuses_a_receiver_as_it_does_for_metrics(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, headers: str, says: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:9/")
    monkeypatch.setenv("OTEL_PROFILES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROFILES_HEADERS", headers)
    done = subprocess.run(program(7), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert "secret" not in done.stderr


def test_profiles_need_the_page_that_serves_them(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text("[stacks]\nhertz = 19\n[metrics]\nenabled = false\n")
    with pytest.raises(UsageError, match=r"stacks\.hertz needs metrics\.enabled"):
        load(config)
