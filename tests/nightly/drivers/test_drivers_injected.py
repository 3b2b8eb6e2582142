# SPDX-License-Identifier: Apache-2.0
"""`qjoule run`: programs that do not know qjoule, their children, and possible failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from tag_listener import Listener, listening

pytestmark = [pytest.mark.beside, pytest.mark.server]
QJOULE = str(Path(sys.executable).with_name("qjoule"))
TIMEOUT_S = 120


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    with listening(tmp_path / "tags.sock") as started:
        monkeypatch.setenv("QJOULE_TAGS_SOCKET", str(started.path))
        monkeypatch.delenv("PYTHONPATH", raising=False)
        yield started


@pytest.fixture
def program(tmp_path: Path, mariadb: DatabaseServer) -> Path:
    """A program that connects twice and queries, and does not know qjoule."""
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(f"""
            import sys
            import pymysql

            for number in range(2):
                connection = pymysql.connect(unix_socket={str(mariadb.socket)!r}, user="root")
                with connection.cursor() as cursor:
                    cursor.execute("select 1")
                    assert cursor.fetchall() == ((1,),)
                connection.close()
            print("done", *sys.argv[1:])
            """)
    )
    return path


def _run(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return _run_process([QJOULE, "run", *argv], **environment)


def _run_process(argv: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_an_unmodified_program(program: Path, listener: Listener) -> None:
    completed = _run("--tag", "release=1.4", "--", sys.executable, str(program), "--tag", "own")
    assert (completed.returncode, completed.stdout) == (0, "done --tag own\n"), completed.stderr
    assert "pymysql" in completed.stderr
    assert "wrapped" in completed.stderr
    process = listener.only()
    assert process.begins
    assert all(begin.tags == {"release": "1.4"} for begin in process.begins)
    assert len({begin.connection["client.inode"] for begin in process.begins}) == 2
    assert process.errors == 0


def test_only_who_is_told_its_name_finds_the_report() -> None:
    code = """
        import os
        from pathlib import Path
        report = Path(os.environ["QJOULE_RUN_REPORT"])
        print(oct(report.parent.stat().st_mode & 0o777), len(report.name))
        """
    completed = _run("--", sys.executable, "-c", textwrap.dedent(code))
    assert completed.stdout == "0o711 32\n"


def test_options_name_the_keys_that_travel_otherwise(listener: Listener) -> None:
    code = """
        from qjoule_drivers import comments, context
        from qjoule_drivers import comments
        print(*comments.keys_in_statements, *comments._keys, *context.baggage_keys)
        """
    options = ("--in-statements", "a", "--in-connections", "b", "--from-baggage", "c,d")
    completed = _run(*options, "--", sys.executable, "-c", textwrap.dedent(code))
    assert (completed.returncode, completed.stdout) == (0, "a b c d\n"), completed.stderr
    assert "no driver was wrapped" in completed.stderr
    assert not listener.processes


def test_children_are_instrumented_too(program: Path, listener: Listener, tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        textwrap.dedent(f"""
            import os, subprocess, sys
            import pymysql
            subprocess.run([sys.executable, {str(program)!r}], check=True)
            for _ in range(3):
                if not os.fork():
                    exec(open({str(program)!r}).read())
                    os._exit(0)
            while True:
                try:
                    os.wait()
                except ChildProcessError:
                    break
            """)
    )
    completed = _run("--", sys.executable, str(parent))
    assert completed.returncode == 0, completed.stderr
    assert "in 2 processes" in completed.stderr
    assert len(listener.wait_for(4)) == 4
    assert all(process.begins for process in listener.processes)


@pytest.mark.parametrize("broken", [False, True])
def test_the_program_s_own_sitecustomize_runs(
    program: Path, listener: Listener, tmp_path: Path, broken: bool
) -> None:
    own = "raise RuntimeError('by its owner')" if broken else "print('customized')"
    (tmp_path / "sitecustomize.py").write_text(f"{own}\n")
    completed = _run("--", sys.executable, str(program), PYTHONPATH=str(tmp_path))
    assert completed.returncode == 0
    assert completed.stdout.endswith("done\n" if broken else "customized\ndone\n"), completed.stderr
    assert ("by its owner" in completed.stderr) == broken
    assert listener.only().begins


@pytest.mark.usefixtures("listener")
def test_nothing_else_comes_onto_the_path(tmp_path: Path) -> None:
    """The program's own environment has no numpy, and must not find qjoule's."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    code = "import sys, qjoule_drivers; sys.stdout.write(repr(sys.path)); import numpy"
    completed = _run("-q", "--", str(venv / "bin" / "python"), "-c", code)
    assert "No module named 'numpy'" in completed.stderr
    assert "inject" not in completed.stdout


def test_connections_made_before_instrument_are_tagged_until_the_interpreter_ends(
    listener: Listener, mariadb: DatabaseServer
) -> None:
    code = f"""
        import atexit, pymysql, qjoule_drivers
        connection = pymysql.connect(unix_socket={str(mariadb.socket)!r}, user="root")
        qjoule_drivers.instrument()
        with qjoule_drivers.tag(m="x"):
            connection.query("select 1")
        atexit.register(connection.query, "select 2")
        """
    completed = _run_process([sys.executable, "-c", textwrap.dedent(code)])
    assert (completed.returncode, completed.stderr) == (0, "")
    assert [begin.tags for begin in listener.only().begins] == [{"m": "x"}, {}]


@pytest.mark.usefixtures("listener")
def test_exit_codes_and_signals_are_the_program_s() -> None:
    assert _run("--", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    killed = _run("--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert killed.returncode == 128 + signal.SIGKILL
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        print("ready", flush=True)
        time.sleep(600)
        """
    command = [QJOULE, "run", "-q", "--", sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.terminate()
        assert running.wait(TIMEOUT_S) == 3


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "Missing argument"),
        (("--tag", "novalue", "--", "true"), 2, "expected KEY=VALUE"),
        (("--", "/nonexistent/program"), 1, "cannot start /nonexistent/program"),
    ],
)
def test_wrong_arguments(argv: tuple[str, ...], code: int, message: str) -> None:
    completed = _run(*argv)
    assert completed.returncode == code
    assert message in completed.stderr
    assert len(completed.stderr.strip().splitlines()) == 1
