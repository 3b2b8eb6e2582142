"""`qjoule import perf`: from texts of `perf script`, real ones and made ones, to traces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perf_text import BEGIN_NS, CLIENT, SERVER, THREAD, PerfText, fake_perf, one_query
from qjoule.contract import QueryFlag
from qjoule.errors import QjouleError, UsageError
from qjoule.imports.perf.build import Done, Request, import_perf
from qjoule.imports.perf.servers import parse_server, server_option
from qjoule.imports.perf.switches import switch_of
from qjoule.model.attribute import attribute
from qjoule.trace.reader import Trace

GOLDEN = Path(__file__).parents[1] / "golden" / "perf"
MS = 1_000_000
MARIADB = "1=mariadb,800,10.11.6,mariadb:3306"
POSTGRES = "1=postgres,800,15.4,postgres:5432"


def imported(path: Path, directory: Path, **options: Any) -> tuple[Trace, Done]:
    servers = tuple(parse_server(text) for text in options.pop("servers", ()))
    done = import_perf(Request(path, servers=servers, **options), directory / "t")
    return Trace(directory / "t"), done


def texts(trace: Trace) -> list[str]:
    """Of the queries, in order."""
    of = trace.pandas("shapes").set_index("shape")["text"].to_dict()
    queries = trace.pandas("queries").sort_values("begin_ns")
    return [of.get(shape, "?") for shape in queries["shape"]]


def query_ns(trace: Trace) -> int:
    segments = trace.pandas("segments")
    mine = segments[segments["query"].notna()]
    return int((mine["t1_ns"] - mine["t0_ns"]).sum())


def ns_by_kind(trace: Trace) -> dict[str, int]:
    kinds = trace.pandas("owners").set_index("owner")["kind"].astype(str)
    segments = trace.pandas("segments")
    spent = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["owner"].map(kinds)).sum()
    return {str(kind): int(ns) for kind, ns in spent.items()}


# ---- real texts -------------------------------------------------------------------------------


def test_a_mariadb_that_perf_has_recorded(tmp_path: Path) -> None:
    trace, done = imported(GOLDEN / "mariadb.txt", tmp_path, energy="estimated:5,10,20,40")
    short, long = "select ? as m_short, ? as text", "select benchmark(?, sha2(?, ?)) as m_long"
    assert texts(trace) == ["set names utf8mb4", *[short, long] * 3, short]
    meta = trace.meta
    assert meta.complete and meta.host == "db1.example" and meta.cpu == "AMD EPYC"
    assert meta.imported is not None and meta.imported.version == "6.1.192"
    assert [(one.kind, one.rung) for one in meta.servers] == [("mariadb", "symbol")]
    assert trace.pandas("queries")["status"].dropna().tolist() == ["unfinished"]
    assert any("text" in note for note in done.notes)
    found = attribute(trace)
    assert {row.shape for row in found.rows if row.calls} == {"set names utf8mb4", short, long}


def test_a_postgres_that_perf_has_recorded(tmp_path: Path) -> None:
    trace, _ = imported(GOLDEN / "postgres.txt", tmp_path)
    assert "select ? as m_short" in texts(trace)
    assert any("generate_series" in text for text in texts(trace))
    (server,) = trace.meta.servers
    assert (server.kind, server.rung) == ("postgres", "symbol")
    owners = trace.pandas("owners")
    assert set(owners[owners["server"] == 1]["comm"]) == {"postgres"}


@pytest.mark.parametrize("name", ["mariadb.txt", "postgres.txt"])
def test_no_cpu_does_two_things_at_once(name: str, tmp_path: Path) -> None:
    trace, _ = imported(GOLDEN / name, tmp_path)
    for _cpu, segments in trace.pandas("segments").groupby("cpu"):
        ordered = segments.sort_values("t0_ns")
        assert (ordered["t0_ns"].to_numpy()[1:] >= ordered["t1_ns"].to_numpy()[:-1]).all()
        assert (ordered["t1_ns"] > ordered["t0_ns"]).all()
        assert ordered["t0_ns"].min() >= trace.meta.begin_ns
        assert ordered["t1_ns"].max() <= trace.meta.end_ns


# ---- whose time it is ---------------------------------------------------------------------------


def test_time_is_the_querys_from_its_begin_until_its_thread_sleeps(tmp_path: Path) -> None:
    trace, _ = imported(one_query().write(tmp_path), tmp_path, servers=[MARIADB])
    (query,) = trace.pandas("queries").to_dict("records")
    assert (query["begin_ns"], query["end_ns"]) == (BEGIN_NS + 3 * MS, BEGIN_NS + 8 * MS)
    assert (query["pid"], query["tgid"], query["rung"]) == (THREAD, SERVER, "symbol")
    assert query_ns(trace) == 7 * MS
    spent = ns_by_kind(trace)
    # CPU 1 has its client to the end, by all that is known.
    assert spent == {"process": (2 + 39) * MS, "server": 1 * MS, "query": 7 * MS}
    assert trace.meta.servers[0].name == "mariadb:3306"


def test_a_thread_that_wakes_up_works_for_its_next_query(tmp_path: Path) -> None:
    made = one_query()
    made.switch(41 * MS, CLIENT, THREAD)
    made.begin(42 * MS, b"select 2")
    made.end(43 * MS)
    made.switch(44 * MS, THREAD, 0)
    trace, _ = imported(made.write(tmp_path), tmp_path)
    segments = trace.pandas("segments")
    second = trace.pandas("queries").sort_values("begin_ns")["query"].iloc[1]
    mine = segments[segments["query"] == second]
    assert (mine["t1_ns"] - mine["t0_ns"]).sum() == 3 * MS


def test_records_that_were_lost_leave_a_gap_that_is_nobodys(tmp_path: Path) -> None:
    made = one_query()
    made.switch(50 * MS, CLIENT, THREAD)
    made.side(b"PERF_RECORD_LOST lost 12", 90 * MS, tid=CLIENT)
    made.switch(95 * MS, CLIENT, 0)
    trace, _ = imported(made.write(tmp_path), tmp_path)
    assert trace.loss["segment"] == 12 and trace.lost_cpu_ns == 40 * MS
    segments = trace.pandas("segments")
    here = segments[segments["cpu"] == 0]
    within = here[(here["t1_ns"] > BEGIN_NS + 50 * MS) & (here["t0_ns"] < BEGIN_NS + 90 * MS)]
    assert within.empty
    assert here["t1_ns"].max() == BEGIN_NS + 95 * MS


def test_a_cpu_that_was_never_heard_of_is_not_idle(tmp_path: Path) -> None:
    made = one_query()
    made.lines = [line for line in made.lines if b"[001]" not in line]
    trace, _ = imported(made.write(tmp_path), tmp_path)
    assert trace.lost_cpu_ns == 40 * MS


def test_a_switch_that_was_not_shown_is_counted(tmp_path: Path) -> None:
    made = one_query()
    made.switch(41 * MS, THREAD, 0)
    trace, _ = imported(made.write(tmp_path), tmp_path)
    assert trace.loss == {"switch": 1}


def test_perf_itself_is_the_tracer_and_kernel_threads_the_kernel(tmp_path: Path) -> None:
    made = PerfText()
    for pid, parent, comm in ((700, 1, b"perf"), (701, 700, b"perf-exec")):
        made.side(b"PERF_RECORD_FORK(%d:%d):(%d:%d)" % (pid, pid, parent, parent))
        made.side(b"PERF_RECORD_COMM: %s:%d/%d" % (comm, pid, pid))
    made.switch(-1 * MS, 0, 701)
    made.side(b"PERF_RECORD_COMM exec: sleep:701/701", 0, tid=701)
    made.switch(1 * MS, 701, 700)
    made.switch(3 * MS, 700, 15)
    made.switch(6 * MS, 15, 701)
    made.side(b"PERF_RECORD_EXIT(701:701):(700:700)", 7 * MS, tid=701)
    made.switch(9 * MS, 701, 700)
    made.switch(30 * MS, 700, 0)
    trace, _ = imported(made.write(tmp_path), tmp_path)
    assert (trace.meta.begin_ns, trace.meta.end_ns) == (BEGIN_NS, BEGIN_NS + 7 * MS)
    spent = ns_by_kind(trace)
    assert spent == {"process": 2 * MS, "tracer": 2 * MS, "kernel": 3 * MS}


# ---- statements ---------------------------------------------------------------------------------


def test_literals_stay_home(tmp_path: Path) -> None:
    path = one_query().write(tmp_path)
    imported(path, tmp_path)
    for file in (tmp_path / "t").rglob("*"):
        assert file.is_dir() or b"secret" not in file.read_bytes()
    kept = tmp_path / "kept"
    trace, _ = imported(path, kept, literals=True)
    assert trace.meta.literals
    assert b"secret" in trace.pandas("statements")["text"].iloc[0]


def test_a_text_that_could_not_be_read_is_none(tmp_path: Path) -> None:
    """Then perf prints what lies behind the record. So it does where the text is too long."""
    made = one_query()
    made.switch(41 * MS, CLIENT, THREAD)
    made.begin(42 * MS, b"select 1", printed=b"\t")
    made.end(43 * MS)
    made.begin(44 * MS, b"select 2 -- long", size=9000)
    made.end(45 * MS)
    made.switch(50 * MS, THREAD, 0)
    trace, _ = imported(made.write(tmp_path), tmp_path)
    assert trace.loss["text"] == 2
    queries = trace.pandas("queries").sort_values("begin_ns")
    assert queries["fingerprint"].isna().tolist() == [False, True, True]
    assert [bool(f & QueryFlag.NO_TEXT) for f in queries["flags"]] == [False, True, True]


def test_executions_of_prepared_statements_are_counted_without_text(tmp_path: Path) -> None:
    made = one_query()
    made.switch(41 * MS, CLIENT, THREAD)
    made.begin(42 * MS, b"select ? from t", command=22)
    made.end(43 * MS)
    made.begin(44 * MS, b"\1", command=23)
    made.end(45 * MS)
    made.begin(46 * MS, b"", command=1)
    made.end(47 * MS)
    made.switch(50 * MS, THREAD, 0)
    trace, _ = imported(made.write(tmp_path), tmp_path)
    queries = trace.pandas("queries").sort_values("begin_ns")
    assert queries["command"].tolist() == ["query", "prepare", "execute", "other"]
    assert queries["executions"].tolist() == [1, 0, 1, 0]
    assert trace.loss["prepared"] == 1


def test_a_query_whose_end_was_lost_ends_with_the_next_one(tmp_path: Path) -> None:
    made = one_query()
    made.switch(41 * MS, CLIENT, THREAD)
    made.begin(42 * MS, b"select 1 as a")
    made.begin(44 * MS, b"select 1 as b")
    trace, _ = imported(made.write(tmp_path), tmp_path)
    queries = trace.pandas("queries").sort_values("begin_ns")
    assert bool(queries["flags"].iloc[1] & QueryFlag.NO_END)
    assert queries["status"].iloc[2] == "unfinished"
    assert trace.loss["query"] == 1


def test_a_pool_of_threads_takes_a_query_up_again(tmp_path: Path) -> None:
    made = one_query()
    made.switch(41 * MS, CLIENT, THREAD)
    made.begin(42 * MS, b"select sleep(1)", thd=0x8800)
    made.end(43 * MS, result=2)
    made.begin(45 * MS, b"select other", thd=0x9900)
    made.end(46 * MS)
    made.begin(48 * MS, b"select sleep(1)", thd=0x8800)
    made.end(49 * MS)
    made.switch(50 * MS, THREAD, 0)
    pool = MARIADB.replace("mariadb,", "mariadb+pool,", 1)
    trace, _ = imported(made.write(tmp_path), tmp_path, servers=[pool])
    queries = trace.pandas("queries").sort_values("begin_ns")
    assert queries["end_ns"].tolist() == [BEGIN_NS + at * MS for at in (8, 49, 46)]
    assert bool(queries["flags"].iloc[1] & QueryFlag.RESUMED)


def _postgres(made: PerfText, at_ns: int, state: int, text: bytes = b"", address: int = 0) -> None:
    first = int.from_bytes(text[:8].ljust(8, b"\0"), "little")
    payload = b'(55aa) state=%d address=%#x first=%#x text="%s"' % (state, address, first, text)
    made.probe(at_ns, b"qjoule_800:pg_activity_1:", payload)


def test_postgres_is_told_by_what_its_backends_report(tmp_path: Path) -> None:
    made = PerfText()
    made.switch(0, 0, THREAD)
    made.switch(1 * MS, 0, CLIENT, cpu=1)
    _postgres(made, 2 * MS, 2, b"select 1 as a", 0x10)
    _postgres(made, 3 * MS, 2, b"select 1 as a", 0x10)  # bound
    made.probe(4 * MS, b"qjoule_800:pg_run_1:", b"(55ab) top=1 start=1")
    _postgres(made, 5 * MS, 2, b"select 1 as b", 0x20)  # a pipeline goes on
    made.probe(6 * MS, b"qjoule_800:pg_run_1:", b"(55ab) top=1 start=1")
    made.probe(7 * MS, b"qjoule_800:pg_failed_1:", b"(55ac)")
    _postgres(made, 8 * MS, 1)
    _postgres(made, 9 * MS, 2, b"parsed only", 0x30)
    _postgres(made, 10 * MS, 3)
    made.switch(20 * MS, THREAD, 0)
    trace, _ = imported(made.write(tmp_path), tmp_path, servers=[POSTGRES])
    queries = trace.pandas("queries").sort_values("begin_ns")
    assert texts(trace) == ["select ? as a", "select ? as b", "parsed only"]
    assert queries["executions"].tolist() == [1, 1, 0]
    assert queries["command"].tolist() == ["query", "query", "prepare"]
    assert queries["status"].fillna("").tolist() == ["", "error", ""]
    assert queries["end_ns"].tolist() == [BEGIN_NS + at * MS for at in (5, 8, 10)]


# ---- bad input ----------------------------------------------------------------------------------

FORGED = b"\n  801/801   [000]   100.004000000: sched:sched_switch: " + (
    b"prev_comm=x prev_pid=801 prev_prio=1 prev_state=S ==> "
    b"next_comm=x next_pid=900 next_prio=1\n-- "
)


def test_a_statement_cannot_imitate_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = PerfText()
    made.switch(0, 0, THREAD)
    made.switch(1 * MS, 0, CLIENT, cpu=1)
    made.begin(3 * MS, b"select 1" + FORGED)
    made.end(8 * MS)
    made.switch(10 * MS, THREAD, 0)
    data = fake_perf(tmp_path, made)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    trace, done = imported(data, tmp_path)
    assert query_ns(trace) == 7 * MS and trace.loss == {}
    assert len(trace.pandas("queries")) == 1
    assert not any("imitate" in note for note in done.notes)


def test_names_of_threads_may_be_any_bytes(tmp_path: Path) -> None:
    made = one_query()
    for at, comm in enumerate((b"a\nb [001] 1.0:", b"] ==> next_pid=", b"\xff\x1b[31m", b'"')):
        made.side(b"PERF_RECORD_COMM: %s:%d/%d" % (comm, CLIENT, CLIENT), (41 + at) * MS, tid=900)
        made.switch((41 + at) * MS + 10, CLIENT, CLIENT, comm=comm)
    trace, done = imported(made.write(tmp_path), tmp_path)
    assert trace.loss == {} and not any("could not be read" in note for note in done.notes)


def _damaged(made: PerfText, line: bytes) -> bytes:
    return made.text + line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: b"", "is empty"),
        (lambda _: b"\x00\x01garbage", "neither a perf.data"),
        (lambda text: b"hello\n" + text, "line 1: this is no record"),
        (lambda text: text[:-20], "the text ends within this line"),
        (lambda text: text + b"x" * (1 << 17) + b"\n", "a line that is longer"),
        (lambda text: text + b"more\n" * 20_000, "a record that is longer"),
        (lambda text: text.replace(b"prev_pid=801", b"prev_pid=?"), "this is no context switch"),
        (lambda text: text.replace(b"  100.040", b"9999999999.040"), "no machine has such a time"),
        (lambda text: text.replace(b"  100.040", b" 9100.040"), "leaps by more than an hour"),
        (lambda text: text.replace(b"[001]", b"[077]"), "CPU 77 is none of those in its header"),
        (lambda text: text.replace(b"clockid: mono", b"clockid: boot"), "another clock"),
        (lambda text: text.replace(b"# clockid: monotonic (1)\n", b""), "another clock"),
        (lambda text: text.replace(b"sched:sched", b"sched:other"), "has no context switches"),
        (lambda text: text.replace(b"command=3", b"command=?"), "an argument of a uprobe"),
        (lambda text: text.replace(b"command=3", b"command=" + b"9" * 99), "of 64 bits"),
        (lambda text: text.replace(b"command=3 ", b""), "the probe does not tell 'command'"),
        (lambda text: text.replace(b'= 7"', b"= 7"), "the text has no end"),
    ],
)
def test_damage_is_one_line_that_names_the_place(change: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "perf.txt"
    path.write_bytes(change(one_query().text))
    with pytest.raises(QjouleError, match=words) as caught:
        imported(path, tmp_path)
    assert "\n" not in str(caught.value)


def test_what_came_before_the_damage_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "perf.txt"
    path.write_bytes(one_query().text + b" 1/1 [000] 100.200000000: sched:sched_switch: what\n")
    with pytest.raises(QjouleError, match="line 33"):
        imported(path, tmp_path)
    trace = Trace(tmp_path / "t")
    assert not trace.meta.complete and len(trace.pandas("queries")) == 1


def test_without_perf_a_text_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fake_perf(tmp_path, one_query())
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(QjouleError, match=r"cannot run perf .*perf script --header"):
        imported(data, tmp_path)


def test_perfs_failure_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fake_perf(tmp_path, one_query(), code=3)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(QjouleError, match="perf cannot read"):
        imported(data, tmp_path)


def test_two_accounts_that_differ_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = one_query()
    made.heads[-1] = made.heads[-1].replace(b"[000]", b"[001]")
    data = fake_perf(tmp_path, made)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(QjouleError, match=r"two different accounts|this is no context switch"):
        imported(data, tmp_path)


def test_without_a_header_the_topology_is_said_to_be_unknown(tmp_path: Path) -> None:
    made = one_query()
    made.header = b""
    trace, done = imported(made.write(tmp_path), tmp_path)
    assert [(one.cpu, one.package) for one in trace.meta.cpus] == [(0, 0), (1, 0)]
    assert any("share a package is not known" in note for note in done.notes)
    assert trace.meta.realtime_offset_ns is None


def test_the_header_is_read(tmp_path: Path) -> None:
    trace, _ = imported(one_query().write(tmp_path), tmp_path)
    assert trace.meta.start == "2026-11-22T18:35:22.000Z"
    assert [(one.cpu, one.sibling) for one in trace.meta.cpus] == [(0, 0), (1, 0)]
    assert trace.meta.kernel == "6.1.0-example"


def test_libtraceevents_plugin_prints_switches_otherwise() -> None:
    assert switch_of(b"mariadbd:801 [120] S ==> swapper/1:0 [120]", 801) == (801, 0)
    assert switch_of(b"a:1 [1] S ==> b:801 [120] R+ ==> c:9 [100]", 801) == (801, 9)
    assert switch_of(b"mariadbd:801 [120] X ==> b:1 [1] S ==> :9 [100]", -1) == (801, 9)
    assert switch_of(b"mariadbd 801", 801) is None


@pytest.mark.parametrize("text", ["1", "0=mariadb,1,,x", "1=oracle,1,,x", "99=mysql,1,,x", "1=,,"])
def test_a_server_has_a_form(text: str) -> None:
    with pytest.raises(UsageError, match="is not ID=KIND,PID,VERSION,NAME"):
        parse_server(text)


def test_a_server_is_printed_as_it_is_read() -> None:
    for text in (MARIADB, "2=voltdb,7,,java:1,2", "3=mysql+pool,812,8.0.33,a b"):
        assert server_option(parse_server(text)) == text
    assert pd.notna(parse_server(MARIADB).version)
