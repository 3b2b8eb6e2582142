# SPDX-License-Identifier: Apache-2.0
"""The kernel's verifier accepts shape_hash.h, and the kernel's hash equals the host's."""

from __future__ import annotations

import ctypes
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from pathlib import Path

import pytest

from fuzz.shape_library import SQL_DIALECTS, c_hash
from host_library import ROOT
from qjoule.contract import TEXT_BYTES

pytestmark = [pytest.mark.beside, pytest.mark.root]

CLANG = shutil.which("clang-14") or shutil.which("clang")
JOB = struct.Struct("<QQII")  #: struct shape_job: seed, shape, bytes, dialect | rules << 8
JOB_TEXT_BYTES = 4096  #: its last field
Hash = Callable[[int, int, int, bytes], int]


@pytest.fixture(scope="module")
def kernel_hash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hash]:
    """Hashes a statement in the kernel, by seed, dialect and rules."""
    library = find_library("bpf")
    if not CLANG or not library or not Path("/usr/include/bpf/libbpf.h").exists():
        pytest.skip("needs clang and libbpf-dev to build the BPF object")
    path = tmp_path_factory.mktemp("shape") / "shape_prog.bpf.o"
    command = ["cc", "-print-multiarch"]
    multiarch = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    flags = ["-g", "-target", "bpf", "-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror"]
    includes = [f"-I{ROOT / 'bpf'}", f"-I/usr/include/{multiarch}"]
    source = ROOT / "tests/nightly/tracer/shape_prog.bpf.c"
    subprocess.run([CLANG, *flags, *includes, "-c", source, "-o", path], check=True)
    bpf = ctypes.CDLL(library)
    for name in ("open", "find_program_by_name", "find_map_by_name"):
        getattr(bpf, f"bpf_object__{name}").restype = ctypes.c_void_p
    object_ = ctypes.c_void_p(bpf.bpf_object__open(bytes(path)))
    assert object_
    assert not bpf.bpf_object__load(object_), "the verifier refuses it"
    jobs = ctypes.c_void_p(bpf.bpf_object__find_map_by_name(object_, b"jobs"))
    jobs_fd, job = bpf.bpf_map__fd(jobs), ctypes.create_string_buffer(bpf.bpf_map__value_size(jobs))
    program = ctypes.c_void_p(bpf.bpf_object__find_program_by_name(object_, b"hash_job"))
    program_fd, key = bpf.bpf_program__fd(program), ctypes.c_uint32(0)
    options = ctypes.create_string_buffer(struct.pack("@N", 128), 128)  # of its own size, no input

    def hashed(seed: int, dialect: int, rules: int, text: bytes) -> int:
        ctypes.memset(job, 0, len(job))
        JOB.pack_into(job, 0, seed, 0, len(text), dialect | rules << 8)
        struct.pack_into(f"{len(text)}s", job, len(job) - JOB_TEXT_BYTES, text)
        assert not bpf.bpf_map_update_elem(jobs_fd, ctypes.byref(key), job, ctypes.c_uint64(0))
        assert not bpf.bpf_prog_test_run_opts(program_fd, options)
        assert not bpf.bpf_map_lookup_elem(jobs_fd, ctypes.byref(key), job)
        return int(JOB.unpack_from(job)[1])

    yield hashed
    bpf.bpf_object__close(object_)


def _statements() -> list[bytes]:
    pieces = [
        *(b"'", b"''", b"\\", b'"', b"`", b"--", b"#", b"\n", b"/*", b"*/", b"/*!", b"$$", b"$a$"),
        *(b"$1", b"E'", b"x'", b"0x", b"1e-5", b".", b"-", b" ", b"\0", b"\xff", b"select a"),
    ]
    choose = random.Random(5)
    hostile = [b"".join(choose.choices(pieces, k=choose.randrange(200))) for _ in range(300)]
    edges = [b"x" * n for n in (0, 1, 63, 64, 65, 127, 128, 4095, 4096)]
    return [*edges, *hostile, b"select 1, 'a' from t where b in (2, 3) and " * 200]


def test_the_kernel_computes_the_hosts_hash(kernel_hash: Hash) -> None:
    for seed, statement in enumerate(_statements()):
        text, rules = statement[:TEXT_BYTES], seed % 30
        for dialect in SQL_DIALECTS:
            expected = c_hash(text, dialect, seed=seed, rules=rules)
            assert kernel_hash(seed, dialect, rules, text) == expected, text
