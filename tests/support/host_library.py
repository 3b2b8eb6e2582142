# SPDX-License-Identifier: Apache-2.0
"""Compiles C of bpf/ and tracer/: for the host, as a library that tests call, or as the build
does."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

from qjoule.servers.registry import load
from qjoule.servers.registry_header import headers
from qjoule.shapes import tables

ROOT = Path(__file__).resolve().parents[2]
#: With checks whose failure ends the tests: a library cannot load the sanitizers' runtime into a
#: process that runs already.
TRAPPED = ("-O1", "-fsanitize=undefined,bounds", "-fsanitize-undefined-trap-on-error")
_FLAGS = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def generated_headers(directory: Path) -> str:
    """Writes the headers that the build generates into this directory, so that what includes them
    needs no build; returns the compiler option to find them.
    """
    texts = {**headers(load()), "shape_tables.h": tables.header()}
    for name, text in texts.items():
        (directory / name).write_text(text)
    return f"-I{directory}"


def compiled(
    *sources: str,
    compiler: str = "cc",
    flags: tuple[str, ...] = ("-O1",),
    libraries: tuple[str, ...] = (),
) -> ctypes.CDLL:
    """The library of these sources. Their paths, and those in `flags`, are relative to the
    repository.
    """
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "library.so"
        generated = generated_headers(Path(directory))
        command = [compiler, *_FLAGS, generated, *flags, "-Ibpf", *sources, *libraries, "-o"]
        subprocess.run([*command, str(library)], cwd=ROOT, check=True)
        return ctypes.CDLL(str(library))


def built_file(name: str) -> Path:
    """A file of build/bpf, up to date."""
    target = ROOT / "build" / "bpf" / name
    subprocess.run(["make", "-s", str(target.relative_to(ROOT))], cwd=ROOT, check=True)
    return target
