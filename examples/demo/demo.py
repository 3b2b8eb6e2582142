# SPDX-License-Identifier: Apache-2.0
"""Joules per query of a MariaDB that this program starts itself: `make demo`.

Starts the server, loads a seeded data set and records pairs of queries with `qjoule record`. Then
prints what each query cost and how much the better form of each pair saves. Leaves nothing behind.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pymysql

from qjoule.errors import QjouleError
from qjoule_studies.servers import start
from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.servers.process import server_directory
from qjoule_studies.stores.mysql import load_tables
from qjoule_studies.twitter.data import Sizes
from qjoule_studies.twitter.sql_pairs import query_pairs
from qjoule_studies.workload import Target
from report import print_report

HERE = Path(__file__).resolve().parent
STOP_S = 15.0
DATABASE = "twitter"
#: Twice the size of the default data set.
SETTINGS = {"innodb-buffer-pool-size": "512M"}
LEAST_SIZE, MOST_SIZE = 1_000, 10_000_000


def main() -> int:
    options = _parse()
    _end_in_order_when_asked()
    try:
        demo(options)
    except (QjouleError, pymysql.Error, OSError) as error:
        _say(str(error))
        return 1
    except SystemExit as stopped:
        _say("stopped; nothing is left behind")
        return int(stopped.code or 0)
    return 0


def demo(options: argparse.Namespace) -> None:
    """Runs the whole demo. Raises `QjouleError` if a part of it is not available."""
    if os.geteuid() != 0:
        raise QjouleError("tracing needs root: run 'sudo make demo'")
    keep: Path | None = options.keep
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise QjouleError(f"{keep} is there and not empty: give another directory with --keep")
    sizes = Sizes(options.size)
    with server_directory() as directory:
        trace = keep or directory / "trace"
        with start("mariadb", SETTINGS) as server:
            _load(server, sizes, options.seed)
            _record(server, sizes, options.seconds, trace)
        _say("the server is stopped; attributing")
        complete = print_report(trace, query_pairs(sizes))
    if not complete:
        raise QjouleError("the trace was cut off: the figures are those of its beginning")
    if keep is not None:
        print(f"\nThe trace is in {keep}. Another view of it: qjoule attribute {keep} --idle even")


def _load(server: Target, sizes: Sizes, seed: int) -> None:
    begin = time.monotonic()
    with connect_target(server, DATABASE) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT VERSION()")
            (version,) = cursor.fetchone() or ("?",)
        _say(f"MariaDB {str(version).partition('-')[0]} on {server.host}:{server.port}")
        load_tables(connection, sizes, seed)
    _say(
        f"{sizes.tweets:,} tweets of {sizes.users:,} users from {sizes.locations:,} locations "
        f"loaded in {time.monotonic() - begin:.1f} s (seed {seed})"
    )


def _record(server: Target, sizes: Sizes, seconds: float, trace: Path) -> None:
    """Runs `qjoule record` during the workload. Both have ended when this returns or raises."""
    workload = [sys.executable, str(HERE / "workload.py"), "--port", str(server.port)]
    workload += [
        "--user",
        server.user,
        "--database",
        DATABASE,
        "--size",
        str(sizes.tweets),
        "--seconds",
        str(seconds),
    ]
    record = [sys.executable, "-m", "qjoule", "record", "-o", str(trace), "--pid", str(server.pid)]
    process = subprocess.Popen(
        [*record, "--", *workload],
        env={**_environment(), "MARIADB_PASSWORD": server.password},
        start_new_session=True,  # Ctrl-C is handled by us: we end both, in order
    )
    try:
        code = process.wait()
    finally:
        _end_group(process)
    if code < 0:
        raise QjouleError(f"the recording was ended by {signal.Signals(-code).name}: run it again")
    if code:
        raise QjouleError(f"the recording or its workload failed (exit code {code}): see above")


def _environment() -> dict[str, str]:
    """Our environment. If sudo's user cannot reach the workload (below /root), root runs it."""
    environment = dict(os.environ)
    uid = environment.get("SUDO_UID", "")
    if not uid.isdigit() or not all(
        directory.stat().st_mode & (0o100 if directory.stat().st_uid == int(uid) else 0o001)
        for directory in (*HERE.parents, *Path(sys.executable).parents)
    ):
        environment.pop("SUDO_UID", None)
    return environment


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends `qjoule record` and the workload: asks first, so that the trace ends in order."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_in_order_when_asked() -> None:
    """The first signal unwinds the program. Further signals do not disturb the clean-up."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _frame: FrameType | None) -> None:
        for ending_signal in signals:
            signal.signal(ending_signal, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for ending_signal in signals:
        signal.signal(ending_signal, stop)


def _say(message: str) -> None:
    with suppress(OSError):
        print(f"demo: {message}", file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo.py",
        description="Joules per query of a MariaDB that is started for it, and the gain of the "
        "better form of five pairs of queries. Needs root.",
        epilog="examples:\n  sudo make demo\n"
        "  sudo .venv/bin/python examples/demo/demo.py --size 1000000 --keep tweets.qjoule",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--size", type=_size, default=200_000, metavar="N", help="tweets [default: 200000]"
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=40.0, help="time of the workload [default: 40]"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the data set [default: 1]")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the trace here")
    return parser.parse_args()


def _size(text: str) -> int:
    size = int(text.replace("_", "").replace(",", ""))
    if not LEAST_SIZE <= size <= MOST_SIZE:
        raise argparse.ArgumentTypeError(f"give {LEAST_SIZE:,} to {MOST_SIZE:,} tweets")
    return size


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("give 1 to 3600 seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
