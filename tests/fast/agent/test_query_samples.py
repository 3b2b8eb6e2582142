# SPDX-License-Identifier: Apache-2.0
"""Drawn queries for others: as events, and as exemplars of the latency histogram."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otlp_receiver import receiver
from qjoule.agent import recent_queries
from qjoule.agent.config import load
from qjoule.agent.recent_queries import RecentQueries
from qjoule.errors import UsageError
from qjoule.live.tagged_sums import TaggedSums
from qjoule.metrics import exemplars, exposition
from qjoule.metrics.exemplars import FAMILY, Exemplars
from qjoule.metrics.exposition import Family, Sample
from qjoule.metrics.http import Bounds
from qjoule.metrics.messages import Request
from qjoule.metrics.server import MetricsServer, ShownBytes
from qjoule.metrics.shared import Board, SnapshotBoard
from qjoule.push import samples
from qjoule.push.__main__ import families_of
from qjoule.push.otlp import About, Otlp
from qjoule.push.samples import Document, NotServed, QuerySamples
from qjoule.servers import registry

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ABOUT = About({"db": "mariadb"}, {("db", "f1"): "SELECT t"})
INFO = Family(
    *("qjoule_query", "info", "", ""),
    [
        Sample(
            (
                *(("server", "db"), ("fingerprint", "f1")),
                *(("text", "select ? from t"), ("digest", "d1")),
            ),
            "1",
        )
    ],
)
NOW_S = 2_000_000_000.0


def row(**changed: Any) -> dict[str, Any]:
    defaults = {
        **{"time": round(NOW_S * 1e6), "server": "db", "fingerprint": "f1", "database": "shop"},
        **{"user": "anna", "application": None, "client": "10.0.0.7", "calls": 1},
        **{"latency_ns": 2_000_000, "cpu_ns": 1_000_000, "energy_nj": 3_000_000, "error_nj": 5e5},
        **{"rows": 7, "outcome": "ok", "probability": 0.25, "wait_lock_ns": 500_000},
        **{"trace": TRACE, "span": SPAN},
    }
    return {name: of for name, of in (defaults | changed).items() if of is not ...}


def shown(*taken: list[dict[str, Any]], wall_s: float = NOW_S) -> bytes:
    board = SnapshotBoard()
    queries = RecentQueries(board, pytest.fail)
    for rows in taken:
        queries.take(rows, "estimated", "separate", wall_s)
    content = board.read()
    assert content is not None
    return content[2]


class Sender:
    def __init__(self, patch: pytest.MonkeyPatch, url: str, content: bytes | Exception) -> None:
        patch.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", url)
        patch.setattr(samples, "TIMEOUT_S", 0.5)
        patch.setattr(time, "time", lambda: NOW_S - 60)
        self.content = content
        self.samples = QuerySamples("db1", lambda _families: ABOUT, self.read)

    def read(self) -> bytes:
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def send(self) -> bool:
        return self.samples.send([INFO], NOW_S)


def records(content: bytes) -> list[Any]:
    request = ExportLogsServiceRequest()
    request.ParseFromString(content)
    return list(request.resource_logs[0].scope_logs[0].log_records)


def attributes(record: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in record.attributes
    }


def test_an_event_has_what_the_collectors_receivers_send_and_joules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiver() as receives:
        assert Sender(monkeypatch, receives.url, shown([row()])).send()
    (record,) = records(receives.got[0][1])
    assert record.event_name == "db.server.query_sample"
    assert record.time_unix_nano == NOW_S * 1e9
    assert (record.trace_id.hex(), record.span_id.hex()) == (TRACE, SPAN)
    assert attributes(record) == {
        **{"db.system.name": "mariadb", "db.namespace": "shop", "user.name": "anna"},
        **{"db.query.text": "select ? from t", "db.query.summary": "SELECT t"},
        **{"client.address": "10.0.0.7", "network.peer.address": "10.0.0.7"},
        **{"qjoule.server": "db", "qjoule.fingerprint": "f1", "qjoule.query.outcome": "ok"},
        **{"qjoule.grade": "estimated", "qjoule.idle": "separate"},
        **{"qjoule.query.duration": 0.002, "qjoule.query.cpu.time": 0.001},
        **{"qjoule.sample.probability": 0.25, "qjoule.query.rows": 7},
        **{"qjoule.query.energy": 0.003, "qjoule.query.energy.error": 0.0005},
        **{"qjoule.query.wait.time.lock": 0.0005},
        "mysql.events_statements_current.digest": "d1",
    }


def test_what_is_not_known_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = dict.fromkeys(("database", "user", "client", "energy_nj", "rows", "outcome"))
    bare = row(**unknown, fingerprint="f2", trace=..., span=..., wait_lock_ns=...)
    with receiver() as receives:
        assert Sender(monkeypatch, receives.url, shown([bare, row(client="unix")])).send()
    first, second = records(receives.got[0][1])
    assert not first.trace_id and not first.span_id
    assert attributes(first).keys() == {
        *("db.system.name", "qjoule.server", "qjoule.fingerprint"),
        *("qjoule.grade", "qjoule.idle", "qjoule.query.duration", "qjoule.query.cpu.time"),
        "qjoule.sample.probability",
    }
    assert "client.address" not in attributes(second)


@pytest.mark.parametrize(
    ("trace", "span"),
    [("0" * 32, SPAN), (TRACE, "0" * 16), (TRACE.upper(), SPAN), (TRACE + "\n", SPAN), ("x", "")],
)
def test_an_id_that_is_none_is_not_sent(
    trace: str, span: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as receives:
        assert Sender(monkeypatch, receives.url, shown([row(trace=trace, span=span)])).send()
    (record,) = records(receives.got[0][1])
    assert not record.trace_id and not record.span_id


def test_each_query_is_sent_once_and_again_only_if_it_was_not_taken(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    early = row(time=round((NOW_S - 61) * 1e6))  # before the program began
    with receiver(503, 200) as receives:
        sender = Sender(monkeypatch, receives.url, shown([early, row(user="a")]))
        assert not sender.send()
        assert sender.send()
        assert sender.send()
        sender.content = shown([early, row(user="a")], [row(user="b")])  # another agent
        assert sender.send()
    users = [[attributes(record)["user.name"] for record in records(of)] for _, of in receives.got]
    assert users[-1] == ["a", "b"]
    assert users[-2] == ["a"]
    assert "were not sent" not in capfd.readouterr().err


def test_queries_that_were_gone_before_they_were_sent_are_counted(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recent_queries, "MOST", 2)
    board = SnapshotBoard()
    queries = RecentQueries(board, pytest.fail)
    with receiver() as receives:
        sender = Sender(monkeypatch, receives.url, b"")
        for count in (1, 5):
            queries.take([row() for _ in range(count)], "estimated", "separate", NOW_S)
            content = board.read()
            assert content is not None
            sender.content = content[2]
            assert sender.send()
    assert [len(records(content)) for _, content in receives.got] == [1, 2]
    assert "3 drawn queries were not sent in time" in capfd.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"[]", b"{}", b'{"start":"a","last":1,"queries":[{"number":1}]}', b"\xff"),
        b'{"start":"a","last":1e400,"queries":[]}',
        b"[" * 100_000,
        OSError("gone"),
    ],
)
def test_what_is_no_such_document_is_not_sent(
    content: bytes | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as receives:
        assert not Sender(monkeypatch, receives.url, content).send()
    assert not receives.got


def test_an_agent_that_does_not_show_them_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as receives:
        assert Sender(monkeypatch, receives.url, NotServed()).send()
        assert Sender(monkeypatch, receives.url, shown()).send(), "none yet"
    assert not receives.got


def test_what_is_shown_is_bounded_and_new() -> None:
    old = row(time=round((NOW_S - 301) * 1e6))
    document = msgspec.json.decode(shown([old] * 3 + [row()] * 2000), type=Document)
    assert len(document.queries) == recent_queries.MOST
    assert document.last == document.queries[-1].number == 2003
    assert msgspec.json.decode(shown([old], [row()]), type=Document).queries[0].number == 2


def test_it_is_shown_only_if_that_is_wanted() -> None:
    board = SnapshotBoard()
    RecentQueries(board, pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        shows = {"/samples": ShownBytes(board, "application/json")}
        for shown_, code in (({}, 404), (shows, 200)):
            server = MetricsServer(listening, Board(), Bounds(), shown=shown_)
            assert server.respond(Request("/samples", {}, bare=False)).code == code
        strangers = Request("/samples", {"host": "evil.example"}, bare=False)
        assert server.respond(strangers).code == 403


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[metrics]\nsamples = true\nlisten = "0.0.0.0:9779"', "loopback"),
        ("[metrics]\nsamples = true\n[store]\nsamples = 0", "store.samples"),
        ("[metrics]\nsamples = true\n[store]\nenabled = false", "store.samples"),
    ],
)
def test_what_cannot_be_shown_is_refused(text: str, message: str, tmp_path: Any) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load(path)


# ---- traces --------------------------------------------------------------------------------------


def test_a_query_has_the_trace_of_the_tags_that_its_client_sent() -> None:
    sums = TaggedSums(None)
    comments = {5: f"traceparent='00-{TRACE}-{SPAN}-01'", 6: "app='shop'"}
    for number, comment in comments.items():
        sums._client_tags.add(number, comment.encode(), registry.dialect("tags"), single=False)
    assert sums.trace_of(5) == (TRACE, SPAN)
    assert sums.trace_of(6) is None
    assert sums.trace_of(0) is None


# ---- exemplars -----------------------------------------------------------------------------------


LABELS = (("server", "db"), ("database", ""), ("fingerprint", "f1"))
COUNTS = tuple(range(1, len(exposition.EDGES) + 1))
HISTOGRAM = Family(
    *("qjoule_query_latency_seconds", "histogram", "Latency.", "seconds"),
    [Sample(LABELS, "1.5", "1000.000", COUNTS, 20)],
)


def with_exemplars(*rows: Mapping[str, Any], wall_s: float = NOW_S) -> Family:
    collected = Exemplars()
    collected.take(rows, wall_s)
    (family,) = collected.with_exemplars([HISTOGRAM])
    return family


def test_the_newest_query_of_each_bucket_is_its_exemplar() -> None:
    rows = row(), row(span="b" * 16), row(latency_ns=10**12, span="c" * 16), row(trace=...)
    family = with_exemplars(*rows, row(latency_ns=-1), row(fingerprint="f2"))
    assert [exemplar.span for exemplar in family.samples[0].exemplars] == ["b" * 16, "c" * 16]
    lines = exposition.page([family], openmetrics=True).decode().splitlines()
    shown = [line for line in lines if "trace_id" in line]
    assert len(shown) == 2
    assert re.fullmatch(
        r'qjoule_query_latency_seconds_bucket\{.*,le="0.004096"\} 5 '
        rf'# \{{trace_id="{TRACE}",span_id="bbbbbbbbbbbbbbbb"\}} 0.002000000 2000000000.000',
        shown[0],
    )
    assert 'le="+Inf"} 20 # {' in shown[1]
    assert "trace_id" not in exposition.page([family], openmetrics=False).decode()
    (read,) = families_of("\n".join(lines))
    assert read.samples[0].exemplars == family.samples[0].exemplars


def test_exemplars_pass_the_board_and_go_to_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    family = with_exemplars(row(), row(latency_ns=10**12, span="0" * 16))
    board = Board()
    board.show([family], 0.0, 1.0)
    read = board.read()
    assert read is not None
    assert read[2][0].samples[0].exemplars == family.samples[0].exemplars
    with receiver() as receives:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receives.url)
        data = Otlp("db1").metrics_data([family], NOW_S)
    (point,) = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    (exemplar,) = point.exemplars  # the other span is none
    assert (exemplar.trace_id, exemplar.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert (exemplar.value, exemplar.time_unix_nano) == (0.002, NOW_S * 1e9)


def test_exemplars_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_exemplars(row(), wall_s=NOW_S + exemplars.KEPT_S + 1) == HISTOGRAM
    monkeypatch.setattr(exemplars, "MOST", 3)
    collected = Exemplars()
    collected.take([row(fingerprint=f"f{number}") for number in range(9)], NOW_S)
    assert len(collected._newest) == 3
    assert list(collected.with_exemplars([HISTOGRAM])) == [HISTOGRAM], "the oldest have gone"


def test_a_series_of_one_database_has_no_query_that_may_be_of_another() -> None:
    labels = (("server", "db"), ("database", "shop"), ("fingerprint", "f1"))
    collected = Exemplars()
    collected.take([row()], NOW_S)
    family = Family(FAMILY, "histogram", "", "", [Sample(labels, "1", "", COUNTS, 20)])
    assert list(collected.with_exemplars([family])) == [family]


def test_pages_without_a_trace_are_as_before() -> None:
    family = with_exemplars(row(trace=..., span=...))
    assert family is HISTOGRAM
