# SPDX-License-Identifier: Apache-2.0
"""`qjoule record` beside a test's load, and its trace as the tests look at it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd
import psutil

from qjoule.contract import QueryFlag
from qjoule.spool.convert import convert
from qjoule.spool.files import names_of
from qjoule.trace.reader import Trace
from qjoule.trace.vocabulary import WAITS
from waiting import until

QJOULE = str(Path(sys.executable).parent / "qjoule")
STOP_TIMEOUT_S = 60.0


class Recorder:
    """A running `qjoule record`; `attached()` returns once every program is in place."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        before: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._messages = ""
        # Tests that run under nohup(1) ignore SIGHUP, and so would their children.
        command = ["env", "--default-signal=HUP", QJOULE, "record", "-o", str(directory), *options]
        self.process = subprocess.Popen(
            [*before, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
        )

    def __enter__(self) -> Recorder:
        try:
            self.attached()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    @property
    def messages(self) -> str:
        """All that it has written to standard error; also once it has ended."""
        if self._log.closed:
            return self._messages
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    @property
    def command_pid(self) -> int:
        """The process without rights that reads and writes; `process` is the root part."""
        return command_of(self.process.pid)

    @property
    def tracer_pid(self) -> int:
        return tracer_of(self.process.pid)

    def attached(self) -> None:
        until(lambda: "qjoule: tracing" in self.messages or self.process.poll() is not None)
        assert self.process.poll() is None, self.messages

    def wait(self) -> int:
        return self.process.wait(STOP_TIMEOUT_S)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.wait()

    def end(self) -> None:
        """Ends the recorder in any case; its tracer ends with it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._messages = self.messages
        self._log.close()


def command_of(root_part: int) -> int:
    """The command that a root part runs."""
    (child, *_) = psutil.Process(root_part).children()
    pid: int = child.pid
    return pid


def tracer_of(root_part: int) -> int:
    """The tracer that its command has started."""
    for child in psutil.Process(root_part).children(recursive=True):
        if child.name().startswith("qjoule-tracer"):
            pid: int = child.pid
            return pid
    raise AssertionError("no tracer")


@contextmanager
def recording(directory: Path, *options: str) -> Iterator[Recorder]:
    """Records the block. After it, `Run(directory)` reads the trace."""
    with Recorder(directory, "--energy", "none", *options) as recorder:
        yield recorder
        assert recorder.stop() == 0, recorder.messages


def until_named(directory: Path, *names: str) -> None:
    """Waits until a recording knows these names: a server answers in its own time."""
    path = names_of(directory)
    until(path.exists)
    until(lambda: all(name.encode() in path.read_bytes() for name in names), f"{names}")


def credentials(directory: Path, text: str, mode: int = 0o600) -> tuple[str, ...]:
    """The option that names a file of accounts with this content."""
    file = directory / f"accounts-{len(text)}.toml"
    file.write_text(text)
    file.chmod(mode)
    return "--credentials", str(file)


@contextmanager
def both_attach_modes(directory: Path, *pids: int, options: Sequence[str] = ()) -> Iterator[None]:
    """Records the block twice, on the socket and the symbol mode: each checks the other."""
    with ExitStack() as stack:
        for attach_mode in ("socket", "symbol"):
            which = *(f"--pid={pid}" for pid in pids), "--attach", attach_mode, "--ring-mb", "64"
            stack.enter_context(recording(directory / attach_mode, *which, *options))
        yield


@contextmanager
def converted_copy(directory: Path) -> Iterator[Path]:
    """Converts a recording that runs, or what is left of one, into a directory of its own."""
    with tempfile.TemporaryDirectory() as folder:
        convert(directory, Path(folder) / "t")
        yield Path(folder) / "t"


class Run:
    """A finished trace: its queries with their texts, counts and loss."""

    def __init__(self, directory: Path) -> None:
        self.trace = Trace(directory)
        shapes = self.trace.pandas("shapes")
        self.text_of: dict[int, str] = dict(zip(shapes["shape"], shapes["text"], strict=True))
        queries = self.trace.pandas("queries")
        queries["text"] = [self.text_of.get(shape) for shape in queries["shape"]]
        self.queries: pd.DataFrame = queries

    @property
    def loss(self) -> dict[str, int]:
        """Loss by cause, except for what the test machine itself causes."""
        own = ("switch", "counter", "multiplexed")
        return {cause: n for cause, n in self.trace.loss.items() if cause not in own}

    def executions(self, **equal: Any) -> Counter[str]:
        """How often each text was executed, for queries with these column values."""
        queries = self.queries
        for column, value in equal.items():
            queries = queries[queries[column] == value]
        counts: Counter[str] = Counter()
        for text, n in zip(queries["text"], queries["executions"], strict=True):
            if n:
                counts[text if isinstance(text, str) else "?"] += int(n)
        return counts

    def flagged(self, flag: QueryFlag) -> pd.DataFrame:
        return self.queries[[bool(int(flags) & flag) for flags in self.queries["flags"]]]

    def commands(self) -> Counter[str]:
        return Counter(self.queries["command"])

    def having(self, word: str) -> pd.DataFrame:
        """Queries whose text contains this word."""
        texts = self.queries["text"].astype("string")  # a trace that has just begun has none
        return self.queries[texts.str.contains(word, regex=False, na=False)]


Story = TypeVar("Story")


@dataclass(frozen=True)
class Trial(Generic[Story]):
    """The clients' own counts, and the trace of the same time."""

    story: Story
    run: Run


def check_waits(trace: Trace) -> pd.DataFrame:
    """Asserts that each query's waits and the time in which its threads ran, by the segments, add
    up to its latency; returns the queries whose waits are recorded.
    """
    queries = trace.pandas("queries")
    waited = queries[queries["parent"].isna()].dropna(subset=WAITS)
    assert len(waited)
    latency_ns = waited["end_ns"] - waited["begin_ns"]
    ran_ns = waited["query"].map(_ran_ns(trace, waited)).fillna(0)
    left_ns = latency_ns - waited[WAITS].astype("int64").sum(axis=1) - ran_ns.astype("int64")
    off = waited.assign(latency_ns=latency_ns, left_ns=left_ns)[left_ns != 0]
    table = off[["fingerprint", "command", "flags", "begin_ns", "latency_ns", "left_ns", *WAITS]]
    assert off.empty, f"{len(off)} of {len(waited)}:\n{table.head(9).to_string()}"
    return waited.assign(latency_ns=latency_ns)


def check_helpers(trace: Trace) -> pd.DataFrame:
    """Asserts that each helper's waits and the time in which it ran for its query, by the segments,
    add up to the time in which it worked for it; returns the helpers.
    """
    helpers = trace.pandas("helpers").astype("int64").rename_axis("helper").reset_index()
    assert len(helpers)
    segments = trace.pandas("segments").dropna(subset="query")
    segments["pid"] = segments["owner"].map(trace.pandas("owners").set_index("owner")["pid"])
    segments = segments[["query", "pid", "t0_ns", "t1_ns"]].astype("int64")
    ran_ns = _inside_ns(segments.merge(helpers, on=["query", "pid"]), "helper")
    helpers["helped_ns"] = helpers["end_ns"] - helpers["begin_ns"]
    helpers["ran_ns"] = ran_ns.reindex(helpers["helper"], fill_value=0)
    left_ns = helpers["helped_ns"] - helpers["ran_ns"] - helpers[WAITS].sum(axis=1)
    assert not left_ns.any(), helpers.assign(left_ns=left_ns)[left_ns != 0].head(9).to_string()
    return helpers


def check_no_waits(trace: Trace) -> None:
    """Asserts that a server whose requests share a thread has no waits, and that outputs say so."""
    assert trace.pandas("queries")[WAITS].isna().all(axis=None)
    rows = attribute(trace.path)["rows"]
    assert not {"ran_ns", "waits_latency_ns", *WAITS} & {name for row in rows for name in row}
    done = qjoule("attribute", str(trace.path), "--columns", "waits")
    assert re.search(r"^waits +not recorded", done.stdout, re.MULTILINE), done.stdout


def _ran_ns(trace: Trace, queries: pd.DataFrame) -> pd.Series:
    """By query: how long its threads ran between its begin and its end, without helpers in
    parallel. Segments of a child belong to its query.
    """
    parents = trace.pandas("queries").dropna(subset="parent").set_index("query")["parent"]
    threads = trace.pandas("owners").set_index("owner")["pid"]
    segments = trace.pandas("segments").dropna(subset="query")
    segments["query"] = segments["query"].map(parents).fillna(segments["query"])
    segments["thread"] = segments["owner"].map(threads)
    parts = segments.merge(queries[["query", "begin_ns", "end_ns", "pid", "flags"]], on="query")
    moved = parts["flags"].astype("int64") & int(QueryFlag.RESUMED) != 0
    return _inside_ns(parts[moved | (parts["thread"] == parts["pid"])], "query")


def _inside_ns(parts: pd.DataFrame, by: str) -> pd.Series:
    """How long the segments are within their rows' begins and ends."""
    inside = parts[["t1_ns", "end_ns"]].min(axis=1) - parts[["t0_ns", "begin_ns"]].max(axis=1)
    return inside.clip(lower=0).groupby(parts[by]).sum()


def check_whole(run: Run, attach_mode: str, **loss: int) -> None:
    """Asserts this loss and no other, the attach mode, and that no literal is in the trace."""
    assert run.loss == loss
    assert run.trace.complete
    assert set(run.queries["attach_mode"]) == {attach_mode}
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]
    assert len(run.trace.pandas("statements")) == 0


def attribute(directory: Path, *options: str) -> dict[str, Any]:
    """The document of `qjoule attribute --format json`."""
    done = qjoule("attribute", str(directory), "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def qjoule(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [QJOULE, *arguments], capture_output=True, text=True, check=False, timeout=120, **options
    )


Client = TypeVar("Client")


def at_once(work: Callable[[Client], object], clients: Iterable[Client]) -> None:
    """Runs the work of all clients, each in its own thread; raises the first error when all have
    ended.
    """
    all_clients = list(clients)
    with ThreadPoolExecutor(len(all_clients)) as pool:
        for _ in pool.map(work, all_clients):
            pass


#: How many statements `make test-counts` sends: 100,000; nothing in the suite.
LONG_RUN = os.environ.get("QJOULE_TEST_STATEMENTS")


def statements(few: int) -> int:
    """How many statements a test of counts sends: the requested number, or else `few`."""
    return int(LONG_RUN or few)
