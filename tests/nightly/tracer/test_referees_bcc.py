# SPDX-License-Identifier: Apache-2.0
"""Commands that qjoule finds on sockets, against a bcc program that counts a function's calls.

bcc compiles against kernel headers. Debian's headers may belong to another kernel than the running
one. Fields of kernel structures would then be wrong, but a counter on a uprobe uses none.
"""

from __future__ import annotations

import glob
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import Run, recording
from waiting import until

#: Debian installs bcc for its own Python, not for ours.
DEBIAN_PYTHON = "/usr/bin/python3"
HEADERS = sorted(glob.glob("/usr/src/linux-headers-*-amd64"))  # noqa: PTH207

COUNTER = """
import os, sys
from bcc import BPF
executable, tgid = sys.argv[1], int(sys.argv[2])
bpf = BPF(text='''
BPF_ARRAY(calls, u64, 1);
int count(void *ctx) {
    int first = 0;
    if (bpf_get_current_pid_tgid() >> 32 == TGID)
        calls.increment(first);
    return 0;
}'''.replace("TGID", str(tgid)))
symbol = "_Z16dispatch_command19enum_server_commandP3THDPcjb"
bpf.attach_uprobe(name=executable, sym=symbol, fn_name="count")
print("ready", flush=True)
sys.stdin.read()
print(bpf["calls"][0].value, flush=True)
os._exit(0)  # bcc's own clean-up wants a file of tracefs; the probe ends with its descriptor
"""


def bcc_is_installed() -> bool:
    command = [DEBIAN_PYTHON, "-c", "import bcc"]
    return not subprocess.run(command, check=False, capture_output=True).returncode


pytestmark = [
    pytest.mark.root,
    pytest.mark.server,
    pytest.mark.skipif(
        not HEADERS or not bcc_is_installed(),
        reason="needs bcc and kernel headers (python3-bpfcc, linux-headers-amd64)",
    ),
]


@pytest.fixture(scope="module")
def kernel_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian separates an architecture's headers from the common ones; bcc needs one tree."""
    merged = tmp_path_factory.mktemp("headers")
    own = HEADERS[-1]
    common = own.removesuffix("-amd64") + "-common"
    for source, option in ((common, "-as"), (own, "-asn")):
        command = ["cp", option, f"{source}/include", f"{source}/arch", str(merged)]
        subprocess.run(command, check=False, capture_output=True)
    return merged


@contextmanager
def calls_of_dispatch_command(server: DatabaseServer, source: Path) -> Iterator[list[int]]:
    """Appends the number of calls during the block."""
    process = subprocess.Popen(
        [DEBIAN_PYTHON, "-c", COUNTER, str(server.executable), str(server.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BCC_KERNEL_SOURCE": str(source)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    counted: list[int] = []
    try:
        assert process.stdout.readline() == "ready\n", "bcc did not compile or attach its program"
        yield counted
        process.stdin.close()
        counted.append(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


def test_as_many_commands_as_bcc_counts(
    mariadb: DatabaseServer, kernel_source: Path, tmp_path: Path
) -> None:
    with (
        closing(mariadb.connect()) as observer,
        recording(tmp_path / "t", "--pid", str(mariadb.pid), "--attach", "socket"),
        calls_of_dispatch_command(mariadb, kernel_source) as counted,
    ):
        for _ in range(5):
            with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
                for number in range(400):
                    cursor.execute("select %s", (number,))
        with observer.cursor() as cursor:  # a client does not wait until COM_QUIT is handled
            others = "show status where variable_name = 'Threads_connected' and value > 1"
            until(lambda: not cursor.execute(others))
    queries = Run(tmp_path / "t").trace.pandas("queries")
    commands = queries[queries["command"] != "connect"]
    assert len(commands) == counted[0] >= 2000
