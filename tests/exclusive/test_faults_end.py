# SPDX-License-Identifier: Apache-2.0
"""However a recording ends, nothing stays attached and the written data can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from qjoule.process import READER
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import QJOULE, Recorder, Run, converted_copy, qjoule
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]
WAIT_S = 60.0


@pytest.fixture
def recorder(mariadb: DatabaseServer, tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "t", "--pid", str(mariadb.pid), "--attach", "symbol") as recorder:
        yield recorder


def work(server: DatabaseServer, statements: int = 200) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(statements):
            cursor.execute(f"select {number} as m_work")


def until_written(directory: Path, statements: int = 200) -> None:
    """The tracer writes several times a second: soon everything is on the disk."""
    until(lambda: captured(directory) >= statements)


def captured(directory: Path) -> int:
    """The number of the test's statements in a recording that is not converted."""
    if not (directory / "meta.json").exists():
        return 0
    with converted_copy(directory) as tables:
        assert not Trace(tables).complete
        return len(Run(tables).having("m_work"))


def bpf_ids(pid: int) -> dict[str, set[str]]:
    """Ids of the BPF programs and links that a process holds (proc(5), fdinfo)."""
    ids: dict[str, set[str]] = {"prog": set(), "link": set()}
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        for line in entry.read_text().splitlines():
            for kind, numbers in ids.items():
                if line.startswith(f"{kind}_id:"):
                    numbers.add(line.split()[1])
    return ids


def alive(ids: dict[str, set[str]]) -> list[str]:
    def is_there(kind: str, number: str) -> bool:
        command = ["bpftool", kind, "show", "id", number]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    return [f"{kind} {number}" for kind in ids for number in ids[kind] if is_there(kind, number)]


def until_gone(pid: int) -> None:
    until(lambda: not psutil.pid_exists(pid), f"the end of process {pid}")


def nothing_is_attached(ids: dict[str, set[str]]) -> None:
    assert len(ids["prog"]) > 5, "the root part held no programs: look elsewhere"
    assert len(ids["link"]) > 5
    until(lambda: not alive(ids), "the kernel frees them after a grace period")
    events = Path("/sys/kernel/tracing/uprobe_events")
    assert not events.exists() or "qjoule" not in events.read_text()


def test_tracer_killed(recorder: Recorder, mariadb: DatabaseServer) -> None:
    work(mariadb)
    until_written(recorder.directory)
    ids = bpf_ids(recorder.process.pid)
    os.kill(recorder.tracer_pid, signal.SIGKILL)
    assert recorder.wait() == 1
    assert len(recorder.messages.strip().splitlines()) <= 3
    nothing_is_attached(ids)
    trace = Trace(recorder.directory)
    assert not trace.complete
    assert trace.meta.stopped
    assert len(Run(recorder.directory).having("m_work")) == 200
    done = qjoule("attribute", str(recorder.directory))
    assert done.returncode == 0
    assert "the trace was cut off" in done.stdout


def test_reader_killed(recorder: Recorder, mariadb: DatabaseServer) -> None:
    work(mariadb)
    until_written(recorder.directory)
    tracer = recorder.tracer_pid
    ids = bpf_ids(recorder.process.pid)
    os.kill(recorder.command_pid, signal.SIGKILL)
    assert recorder.wait() == 128 + signal.SIGKILL
    until_gone(tracer)
    nothing_is_attached(ids)
    assert captured(recorder.directory) == 200
    done = qjoule("attribute", str(recorder.directory))  # root becomes its owner, and converts it
    assert done.returncode == 0, done.stderr
    assert "converting it now" in done.stderr
    assert not Trace(recorder.directory).complete
    assert len(Run(recorder.directory).having("m_work")) == 200


def test_root_part_killed(recorder: Recorder, mariadb: DatabaseServer) -> None:
    """The kernel removes the root part's probes, and the command ends."""
    work(mariadb)
    until_written(recorder.directory)
    others = recorder.command_pid, recorder.tracer_pid
    ids = bpf_ids(recorder.process.pid)
    assert recorder.stop(signal.SIGKILL) == -signal.SIGKILL
    for pid in others:
        until_gone(pid)
    nothing_is_attached(ids)
    assert len(Run(recorder.directory).having("m_work")) == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_asked_to_stop(recorder: Recorder, mariadb: DatabaseServer, number: signal.Signals) -> None:
    work(mariadb)
    tracer = recorder.tracer_pid
    ids = bpf_ids(recorder.process.pid)
    assert recorder.stop(number) == 0, recorder.messages
    until_gone(tracer)
    nothing_is_attached(ids)
    assert Trace(recorder.directory).complete
    assert len(Run(recorder.directory).having("m_work")) == 200


@pytest.mark.parametrize("rest", [(), ("--rest", "2")], ids=["at once", "after a rest"])
def test_a_command_has_its_words_output_and_exit_code(
    mariadb: DatabaseServer, tmp_path: Path, rest: tuple[str, ...]
) -> None:
    client = f"mariadb -uroot -S {mariadb.socket} -e 'select 1 as m_command'; exit $1"
    options = ("--energy", "none", "--pid", str(mariadb.pid), "-o", str(tmp_path / "t"))
    done = qjoule("record", *options, *rest, "--", "/bin/sh", "-c", client, "it's", "3")
    assert done.returncode == 3, done.stderr
    assert "m_command" in done.stdout, "it has our standard output"
    assert ("until sh ends, with 2 s of rest first" in done.stderr) is bool(rest)
    queries, trace = Run(tmp_path / "t").having("m_command"), Trace(tmp_path / "t")
    assert trace.complete
    assert trace.meta.begin_ns is not None and len(queries) == 1
    # The rest is counted from when all is attached, which is a little after the trace's begin.
    rested_ns = int(queries["begin_ns"].iloc[0]) - trace.meta.begin_ns
    assert rested_ns >= (1_900_000_000 if rest else 0)


def test_not_root() -> None:
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    record = (sys.executable, "-c", "from qjoule.cli import main; main()", "record", "-o", "x")
    done = subprocess.run([*user, *record], capture_output=True, text=True, check=False, cwd="/")
    if "Permission denied" in done.stderr or "ModuleNotFound" in done.stderr:
        pytest.skip("other users may not read this checkout")
    assert done.returncode == 1
    assert "root" in _only_line(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--", "/nonexistent/program"), "/nonexistent/program"),
        (("--rest", "1", "--", "/nonexistent/program"), "/nonexistent/program"),
        (("--energy", "replay:/nonexistent/energy", "-d", "1"), "/nonexistent/energy"),
    ],
)
def test_what_is_not_there_is_named(
    mariadb: DatabaseServer, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    energy = () if "--energy" in arguments else ("--energy", "none")
    options = (*energy, "--pid", str(mariadb.pid), "-o", str(tmp_path / "t"))
    done = qjoule("record", *options, *arguments)
    assert done.returncode == 1
    assert reason in _last_line(done.stderr)


def test_a_kernel_without_btf(mariadb: DatabaseServer, tmp_path: Path) -> None:
    hide = 'mount -t tmpfs none /sys/kernel/btf && exec "$@"'
    record = [QJOULE, "record", "-d", "1", "--pid", str(mariadb.pid), "-o", str(tmp_path / "t")]
    done = subprocess.run(
        ["unshare", "--mount", "--", "sh", "-c", hide, "sh", *record],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "CONFIG_DEBUG_INFO_BTF" in _only_line(done.stderr)


def test_disk_full(mariadb: DatabaseServer, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], check=True)
    recorder = Recorder(disk / "t", "--pid", str(mariadb.pid), "--energy", "none")
    try:
        recorder.attached()
        tracer = recorder.tracer_pid
        deadline = time.monotonic() + WAIT_S
        while recorder.process.poll() is None and time.monotonic() < deadline:
            work(mariadb, 5_000)
        assert recorder.wait() == 1, recorder.messages
        assert "space" in _last_line(recorder.messages)
        until_gone(tracer)
        assert not Trace(disk / "t").complete
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        os.chown(elsewhere, READER, READER)  # `convert` gives up root
        done = qjoule("convert", str(disk / "t"), "-o", str(elsewhere / "tables"))
        assert done.returncode == 1, done.stderr
        trace = Trace(elsewhere / "tables")
        assert trace.rows("queries") > 0
        assert trace.meta.stopped, "there was no room left for the reason"
        assert qjoule("attribute", str(elsewhere / "tables")).returncode == 0
    finally:
        recorder.end()
        subprocess.run(["umount", str(disk)], check=True)


def _only_line(text: str) -> str:
    assert text.count("\n") == 1, text
    return text


def _last_line(text: str) -> str:
    assert "Traceback" not in text
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "number"), [("top", signal.SIGINT), ("record", signal.SIGTERM)]
)
def test_a_signal_ends_what_a_script_started_in_the_background(
    command: str, number: signal.Signals, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """A shell without job control has background commands ignore SIGINT."""
    extra = {"top": ["-b", "--csv", "-d", "0.5"], "record": ["-o", str(tmp_path / "t")]}[command]
    with subprocess.Popen(
        ["env", "--ignore-signal=INT", QJOULE, command, *extra, "--pid", str(mariadb.pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            stream = process.stdout if command == "top" else process.stderr
            assert stream is not None
            assert stream.readline()
            ids = bpf_ids(process.pid)
            process.send_signal(number)
            _, messages = process.communicate(timeout=WAIT_S)
            assert process.returncode == 0, messages
        finally:
            process.kill()
    nothing_is_attached(ids)
