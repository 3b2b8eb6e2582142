# SPDX-License-Identifier: Apache-2.0
"""`record --pin-map` and the profiler of examples/tagged_profiler, which tags its samples by it:
against what `attribute` says of real servers. Also: whose the pin is, and that it costs nothing.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import binomtest, norm

from qjoule.session.pin import BPFFS, PIN
from qjoule_studies.servers.process import DatabaseServer
from tracing.bpf_filesystem import Place, mounted
from tracing.recording import QJOULE, Recorder, Run, attribute
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]
TREE = Path(__file__).parents[3]
EXAMPLE = TREE / "examples" / "tagged_profiler"
HZ = 997
ROUNDS = 400  #: of all statements: some seconds of CPU time
FOUR_SIGMA = 2 * norm.sf(4)


@pytest.fixture
def place() -> Iterator[Place]:
    with mounted("bpf") as mount:
        yield mount


def built(out: Path, abi: Path = TREE / "bpf") -> Path:
    make = ["make", "-C", str(EXAMPLE), f"OUT={out}", f"ABI={abi}"]
    subprocess.run(make, check=True, capture_output=True)
    return out / "tagged_profiler"


@pytest.fixture(scope="module")
def profiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("profiler") / "out")


# ---- tags of samples -----------------------------------------------------------------------------

#: Statements of some milliseconds, with different costs, and one that is short.
STATEMENTS = {
    "mariadb": (
        "select benchmark(20000, md5('a'))",
        "select benchmark(60000, crc32('b'))",
        "select benchmark(10000, sha1('c')) + 1",
        "select 1",
    ),
    "postgres": (
        "select count(*) from generate_series(1, 20000)",
        "select max(md5(x::text)) from generate_series(1, 4000) x",
        "select sum(x * x) from generate_series(1, 9000) x",
        "select 1",
    ),
}


def _work(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for _ in range(ROUNDS):
            for statement in STATEMENTS[server.name.partition(" ")[0]]:
                cursor.execute(statement)
                cursor.fetchall()


def sampled(place: Place, profiler: Path, work: Callable[[], None]) -> pd.DataFrame:
    """The profiler's counts while `work` runs: samples, shape, query, tgid, tid."""
    command = [*place.before, str(profiler), "-a", "-f", str(HZ), "600"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "tagged_profiler: sampling\n"
            work()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    return pd.read_csv(io.StringIO(output), dtype="uint64")


@pytest.mark.parametrize("name", ["mariadb", "postgres"])
def test_samples_are_tagged_and_agree_with_attributed_cpu_time(
    name: str, place: Place, profiler: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with place.recorder(tmp_path / "t", "--pid", str(server.pid), "--pin-map") as recorder:
        assert f"the map of threads is pinned at {PIN}" in recorder.messages
        samples = sampled(place, profiler, lambda: _work(server))
        assert recorder.stop() == 0, recorder.messages
    run = Run(tmp_path / "t")
    queries = run.queries.set_index("query")
    client = samples[samples["tid"].isin(queries["pid"])].copy()
    total = client["samples"].sum()
    assert total > 1000, "or nothing is shown"
    assert client["samples"][client["query"] != 0].sum() >= 0.95 * total
    finished = client[client["query"].isin(queries.index)]
    with_shape = finished[finished["shape"] != 0]
    assert with_shape["samples"].sum() >= 0.95 * total, "they have a statement, too"
    same = with_shape["shape"].to_numpy() == queries.loc[with_shape["query"], "shape"].to_numpy()
    assert with_shape["samples"][same].sum() >= 0.995 * with_shape["samples"].sum()
    check_shares(run, finished)
    others = samples[samples["tgid"] == 0]
    assert not others[["shape", "query", "tid"]].any(axis=None)
    assert not place.pin.parent.exists()


def check_shares(run: Run, samples: pd.DataFrame) -> None:
    """Shares of samples are those of CPU time, as `attribute` has it, within four sigma.

    A query that was just being read has its statement by its number; a login has none.
    """
    statements = run.queries.dropna(subset="fingerprint")
    by_shape, by_number = (
        dict(zip(table[key], table["fingerprint"], strict=True))
        for table, key in ((run.trace.pandas("shapes"), "shape"), (statements, "query"))
    )
    counts: Counter[str] = Counter()
    for number, shape, query in samples[["samples", "shape", "query"]].itertuples(index=False):
        if shape or query in by_number:
            counts[by_shape[shape] if shape else by_number[query]] += int(number)
    rows = [row for row in attribute(run.trace.path)["rows"] if row.get("calls")]
    assert counts.keys() <= {row["fingerprint"] for row in rows}
    cpu_ns, total = sum(row["cpu_ns"] for row in rows), counts.total()
    tests = {}
    for row in rows:
        share, count = row["cpu_ns"] / cpu_ns, counts[row["fingerprint"]]
        tests[row["shape"]] = (count, total * share, binomtest(count, total, share).pvalue)
    print(tests)
    assert sum(expected > 0.05 * total for _, expected, _ in tests.values()) >= 3, tests
    assert min(chance for _, _, chance in tests.values()) > FOUR_SIGMA, tests


# ---- whose the pin is ----------------------------------------------------------------------------


def test_only_root_can_read_the_pin_which_goes_with_the_recording(
    place: Place, profiler: Path, tmp_path: Path, redis: DatabaseServer
) -> None:
    pid = ("--pid", str(redis.pid))
    with place.recorder(tmp_path / "without", *pid) as recorder:
        assert not place.pin.exists(), "nobody asked for it"
        done = place.run(profiler, "1")
        assert done.returncode == 2 and "no recorder has pinned" in done.stderr
        assert recorder.stop() == 0
    with place.recorder(tmp_path / "first", *pid, "--pin-map") as first:
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (place.pin, place.pin.parent)]
        assert modes == [0o600, 0o700]
        assert (place.pin.stat().st_uid, place.pin.parent.stat().st_uid) == (0, 0)
        number = place.map_id
        with place.recorder(tmp_path / "second", *pid, "--pin-map") as second:
            assert "not pinned: another recorder has pinned its own" in second.messages
            assert second.stop() == 0
        assert place.map_id == number
        first.process.kill()
        first.wait()
    assert place.map_id == number, "a killed recorder leaves it"
    done = place.run(profiler, "1")
    assert done.returncode == 2 and "was killed" in done.stderr
    with place.recorder(tmp_path / "third", *pid, "--pin-map") as third:
        assert place.map_id != number
        assert third.stop(signal.SIGTERM) in (0, 128 + signal.SIGTERM), third.messages
    assert not place.pin.parent.exists()


def test_a_profiler_of_another_abi_says_so_and_one_ends_with_its_recorder(
    place: Place, profiler: Path, tmp_path: Path, redis: DatabaseServer
) -> None:
    header = (TREE / "bpf" / "thread_query.h").read_text()
    (tmp_path / "abi").mkdir()
    other = re.sub(r"(#define QJ_THREADS_ABI) 1\b", r"\1 2", header)
    assert other != header
    (tmp_path / "abi" / "thread_query.h").write_text(other)
    stranger = built(tmp_path / "other", tmp_path / "abi")
    with place.recorder(tmp_path / "t", "--pid", str(redis.pid), "--pin-map") as recorder:
        command = [*place.before, str(stranger), "600"]
        with (
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
            closing(redis.connect()) as client,
        ):
            until(lambda: client.ping() and process.poll() is not None)
            assert process.stderr is not None
            assert "the recorder's map has ABI 1, and this program knows 2" in process.stderr.read()
        assert process.returncode == 2
        check_ends(place, profiler, recorder, signal.SIGINT)
    with place.recorder(tmp_path / "u", "--pid", str(redis.pid), "--pin-map") as recorder:
        check_ends(place, profiler, recorder, signal.SIGKILL)


def check_ends(place: Place, profiler: Path, recorder: Recorder, number: signal.Signals) -> None:
    command = [*place.before, str(profiler), "600"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "tagged_profiler: sampling\n"
        recorder.stop(number)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "tagged_profiler: the recorder has ended\n")
    assert "(other processes)" in output


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("ln -s /tmp {place}", "is not a directory of root's alone"),
        ("mkdir {place} && chown 1234 {place}", "is not a directory of root's alone"),
        ("mkdir -m 755 {place}", "is not a directory of root's alone"),
        (
            "mkdir -m 700 {place} && bpftool map create {pin} type hash key 4 value 4 entries 1"
            " name x",
            "is something else than the map of a recorder",
        ),
    ],
    ids=["link", "of another", "open to others", "another map"],
)
def test_what_is_not_the_recorders_own_is_left_alone(
    before: str, message: str, place: Place, tmp_path: Path, redis: DatabaseServer
) -> None:
    script = before.format(place=Path(PIN).parent, bpffs=BPFFS, pin=PIN)
    assert place.run("sh", "-c", script).returncode == 0
    listing = ("find", BPFFS, "-printf", r"%p %i %m %U %l %T@\n")
    state = place.run(*listing).stdout
    assert state.count("\n") > 1
    with place.recorder(tmp_path / "t", "--pid", str(redis.pid), "--pin-map") as recorder:
        assert message in recorder.messages
        assert recorder.stop() == 0
    assert place.run(*listing).stdout == state


def test_without_a_bpf_file_system_the_recording_goes_on(
    tmp_path: Path, redis: DatabaseServer
) -> None:
    with mounted("tmpfs") as place:
        with place.recorder(tmp_path / "t", "--pid", str(redis.pid), "--pin-map") as recorder:
            assert f"{BPFFS} is no BPF file system here" in recorder.messages
            assert recorder.stop() == 0
        assert os.listdir(place.root / BPFFS.removeprefix("/")) == []  # noqa: PTH208


def test_the_live_view_pins_too(place: Place, redis: DatabaseServer) -> None:
    done = place.run(
        QJOULE, "top", "-b", "-n", "1", "-d", "0.5", "--pid", str(redis.pid), "--pin-map"
    )
    assert done.returncode == 0 and f"is pinned at {PIN}" in done.stderr
    assert not place.pin.parent.exists()


# ---- what it costs -------------------------------------------------------------------------------


def _programs(root_part: int) -> list[tuple[str, str]]:
    """Names and instructions of the BPF programs that a process holds, without numbers of maps."""
    infos = [path.read_text() for path in Path(f"/proc/{root_part}/fdinfo").iterdir()]
    numbers = {match[1] for info in infos if (match := re.search(r"^prog_id:\s*(\d+)", info, re.M))}
    programs = []
    for number in numbers:
        listed = _bpftool("-j", "prog", "show", "id", number)
        instructions = _bpftool("prog", "dump", "xlated", "id", number)
        programs.append((json.loads(listed)["name"], re.sub(r"\[id:\d+\]", "[id]", instructions)))
    return sorted(programs)


def _bpftool(*arguments: str) -> str:
    done = subprocess.run(["bpftool", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def test_the_programs_are_the_same_with_and_without(
    place: Place, tmp_path: Path, mariadb: DatabaseServer
) -> None:
    """The hot path pays nothing: instruction by instruction, but for the numbers of maps."""
    programs = []
    for name, options in (("without", ()), ("with", ("--pin-map",))):
        pid = str(mariadb.pid)
        with place.recorder(tmp_path / name, "--pid", pid, *options) as recorder:
            programs.append(_programs(recorder.process.pid))
            assert recorder.stop() == 0
    assert {"on_switch", "on_read"} <= {name for name, _ in programs[0]}
    assert programs[0] == programs[1]


def test_the_example_needs_nothing_but_the_abi(tmp_path: Path) -> None:
    (tmp_path / "abi").mkdir()
    shutil.copy(TREE / "bpf" / "thread_query.h", tmp_path / "abi")
    assert built(tmp_path / "out", tmp_path / "abi").exists()
