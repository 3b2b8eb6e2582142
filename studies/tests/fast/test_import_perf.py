# SPDX-License-Identifier: Apache-2.0
"""`qjoule import perf`: from output of `perf script`, real and handmade, to traces."""

from __future__ import annotations

from pathlib import Path

from perf_text import BEGIN_NS, CLIENT, SERVER, THREAD, PerfText, imported, one_query, query_ns
from qjoule.contract import QueryFlag
from qjoule.engine.attribute import attribute
from qjoule.trace.reader import Trace

GOLDEN = Path(__file__).parent / "golden/perf"
MS = 1_000_000
MARIADB = "1=mariadb,800,10.11.6,mariadb:3306"
POSTGRES = "1=postgres,800,15.4,postgres:5432"


def texts(trace: Trace) -> list[str]:
    """Texts of the queries, in order."""
    of = trace.pandas("shapes").set_index("shape")["text"].to_dict()
    queries = trace.pandas("queries").sort_values("begin_ns")
    return [of.get(shape, "?") for shape in queries["shape"]]


def ns_by_kind(trace: Trace) -> dict[str, int]:
    kinds = trace.pandas("owners").set_index("owner")["kind"].astype(str)
    segments = trace.pandas("segments")
    spent = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["owner"].map(kinds)).sum()
    return {str(kind): int(ns) for kind, ns in spent.items()}


def test_a_mariadb_and_a_postgres_that_perf_has_recorded(tmp_path: Path) -> None:
    trace, done = imported(GOLDEN / "mariadb.txt", tmp_path, energy="estimated:5,10,20,40")
    short, long = "select ? as m_short, ? as text", "select benchmark(?, sha2(?, ?)) as m_long"
    assert texts(trace) == ["set names utf8mb4", *[short, long] * 3, short]
    meta = trace.meta
    assert meta.complete and meta.host == "db1.example" and meta.cpu == "AMD EPYC"
    assert meta.imported is not None and meta.imported.version == "6.1.192"
    assert [(info.kind, info.attach_mode) for info in meta.servers] == [("mariadb", "symbol")]
    assert trace.pandas("queries")["status"].dropna().tolist() == ["unfinished"]
    assert any("text" in note for note in done.notes)
    attribution = attribute(trace)
    assert {row.shape for row in attribution.rows if row.calls} == {
        "set names utf8mb4",
        short,
        long,
    }
    trace, _ = imported(GOLDEN / "postgres.txt", tmp_path / "postgres")
    assert "select ? as m_short" in texts(trace)
    assert any("generate_series" in text for text in texts(trace))
    (server,) = trace.meta.servers
    assert (server.kind, server.attach_mode) == ("postgres", "symbol")
    owners = trace.pandas("owners")
    assert set(owners[owners["server"] == 1]["comm"]) == {"postgres"}


def test_time_is_the_querys_from_its_begin_until_its_thread_sleeps(tmp_path: Path) -> None:
    trace, _ = imported(one_query().write(tmp_path), tmp_path, servers=[MARIADB])
    (query,) = trace.pandas("queries").to_dict("records")
    assert (query["begin_ns"], query["end_ns"]) == (BEGIN_NS + 3 * MS, BEGIN_NS + 8 * MS)
    assert (query["pid"], query["tgid"], query["attach_mode"]) == (THREAD, SERVER, "symbol")
    assert query_ns(trace) == 7 * MS
    spent = ns_by_kind(trace)
    # As far as is known, CPU 1 runs its client to the end.
    assert spent == {"process": (2 + 39) * MS, "server": 1 * MS, "query": 7 * MS}
    assert trace.meta.servers[0].name == "mariadb:3306"


def test_records_that_were_lost_leave_a_gap_that_is_nobodys(tmp_path: Path) -> None:
    """The time of a CPU without records is nobody's, too. A missing switch is counted."""
    recorded = one_query()
    recorded.switch(50 * MS, CLIENT, THREAD)
    recorded.side(b"PERF_RECORD_LOST lost 12", 90 * MS, tid=CLIENT)
    recorded.switch(95 * MS, CLIENT, 0)
    trace, _ = imported(recorded.write(tmp_path), tmp_path)
    assert trace.loss["segment"] == 12 and trace.lost_cpu_ns == 40 * MS
    segments = trace.pandas("segments")
    here = segments[segments["cpu"] == 0]
    within = here[(here["t1_ns"] > BEGIN_NS + 50 * MS) & (here["t0_ns"] < BEGIN_NS + 90 * MS)]
    assert within.empty
    assert here["t1_ns"].max() == BEGIN_NS + 95 * MS
    unheard = one_query()
    unheard.lines = [line for line in unheard.lines if b"[001]" not in line]
    unheard.switch(41 * MS, THREAD, 0)
    trace, _ = imported(unheard.write(tmp_path), tmp_path / "unheard")
    assert (trace.lost_cpu_ns, trace.loss["switch"]) == (41 * MS, 1)


def test_literals_stay_home(tmp_path: Path) -> None:
    path = one_query().write(tmp_path)
    imported(path, tmp_path)
    for file in (tmp_path / "t").rglob("*"):
        assert file.is_dir() or b"secret" not in file.read_bytes()
    with_literals = tmp_path / "kept"
    trace, _ = imported(path, with_literals, literals=True)
    assert trace.meta.literals
    assert b"secret" in trace.pandas("statements")["text"].iloc[0]


def test_commands_of_prepared_statements_and_lost_ends_are_counted(tmp_path: Path) -> None:
    recorded = one_query()
    recorded.switch(41 * MS, CLIENT, THREAD)
    recorded.begin(42 * MS, b"select ? from t", command=22)
    recorded.end(43 * MS)
    recorded.begin(44 * MS, b"\1", command=23)
    recorded.end(45 * MS)
    recorded.begin(46 * MS, b"", command=1)
    recorded.end(47 * MS)
    recorded.begin(48 * MS, b"select 1 as a")
    recorded.begin(49 * MS, b"select 1 as b")
    trace, _ = imported(recorded.write(tmp_path), tmp_path)
    queries = trace.pandas("queries").sort_values("begin_ns")
    assert queries["command"].tolist()[:4] == ["query", "prepare", "execute", "other"]
    assert queries["executions"].tolist()[:4] == [1, 0, 1, 0]
    assert (trace.loss["prepared"], trace.loss["query"]) == (1, 1)
    assert bool(queries["flags"].iloc[4] & QueryFlag.NO_END), "its end was lost"
    assert queries["status"].iloc[5] == "unfinished"


def _postgres(
    recorded: PerfText, at_ns: int, state: int, text: bytes = b"", address: int = 0
) -> None:
    first = int.from_bytes(text[:8].ljust(8, b"\0"), "little")
    payload = b'(55aa) state=%d address=%#x first=%#x text="%s"' % (state, address, first, text)
    recorded.probe(at_ns, b"qjoule_800:pg_activity_1:", payload)


def test_postgres_is_told_by_what_its_backends_report(tmp_path: Path) -> None:
    recorded = PerfText()
    recorded.switch(0, 0, THREAD)
    recorded.switch(1 * MS, 0, CLIENT, cpu=1)
    _postgres(recorded, 2 * MS, 2, b"select 1 as a", 0x10)
    _postgres(recorded, 3 * MS, 2, b"select 1 as a", 0x10)  # bound
    recorded.probe(4 * MS, b"qjoule_800:pg_run_1:", b"(55ab) top=1 start=1")
    _postgres(recorded, 5 * MS, 2, b"select 1 as b", 0x20)  # a pipeline goes on
    recorded.probe(6 * MS, b"qjoule_800:pg_run_1:", b"(55ab) top=1 start=1")
    recorded.probe(7 * MS, b"qjoule_800:pg_failed_1:", b"(55ac)")
    _postgres(recorded, 8 * MS, 1)
    _postgres(recorded, 9 * MS, 2, b"parsed only", 0x30)
    _postgres(recorded, 10 * MS, 3)
    recorded.switch(20 * MS, THREAD, 0)
    trace, _ = imported(recorded.write(tmp_path), tmp_path, servers=[POSTGRES])
    queries = trace.pandas("queries").sort_values("begin_ns")
    assert texts(trace) == ["select ? as a", "select ? as b", "parsed only"]
    assert queries["executions"].tolist() == [1, 1, 0]
    assert queries["command"].tolist() == ["query", "query", "prepare"]
    assert queries["status"].fillna("").tolist() == ["", "error", ""]
    assert queries["end_ns"].tolist() == [BEGIN_NS + at * MS for at in (5, 8, 10)]
