# SPDX-License-Identifier: Apache-2.0
"""The cache of fetched servers: a folder is either complete or absent."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from qjoule_studies.servers.prerequisites import CACHE_VARIABLE, Unavailable, cache

__all__ = ["CACHE_VARIABLE", "cache", "check_sha256", "folder", "run_tool"]

#: Enough for a slow connection and a busy machine; a tool that hangs is still ended.
TOOL_TIMEOUT_S = 1800
#: Hashes and poms of what is fetched.
FILES = Path(__file__).parent


def folder(name: str, identity: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, filled by `fill` unless it is there. Raises Unavailable."""
    place = cache() / f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if place.is_dir():
        return place
    try:
        with _locked(name):
            if not place.is_dir():
                with tempfile.TemporaryDirectory(dir=cache(), prefix=f".{name}-") as scratch:
                    contents = Path(scratch) / "contents"
                    contents.mkdir()
                    fill(contents)
                    contents.rename(place)
    except OSError as error:
        raise Unavailable(
            f"{name} cannot be put below {cache()}: {error.strerror or error} "
            f"(set {CACHE_VARIABLE} to a directory with room)"
        ) from None
    return place


def check_sha256(file: Path, expected: str) -> None:
    """Refuses a file that is not the intended one. Raises Unavailable."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != expected:
        raise Unavailable(f"{file.name} has SHA-256 {digest}, expected {expected}: not used")


def run_tool(
    argv: Sequence[str], cwd: Path, task: str, environment: Mapping[str, str] | None = None
) -> str:
    """Runs a registry's or a build tool; returns its standard output. Raises Unavailable."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TOOL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{task}: {argv[0]} did not end in {TOOL_TIMEOUT_S} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        error = next((line for line in lines if "ERROR" in line), lines[-1])
        raise Unavailable(f"{task}: {Path(argv[0]).name} failed: {error} (offline? then try again)")
    return done.stdout


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
