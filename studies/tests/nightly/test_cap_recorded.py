# SPDX-License-Identifier: Apache-2.0
"""`qjoule cap` on a real server, beside a package whose power follows its limit."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from qjoule_studies.commands.cap import PLACE, SAVED
from qjoule_studies.servers.mysql import mariadb_server
from servers.busy import busy
from tracing.animated_rapl import animated_rapl
from tracing.recording import QJOULE
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(500)]

NOW_W, LOW_W = 100.0, 20.0  #: the package draws at least 42 W while a statement runs
STATEMENT = "select benchmark(2000, sha2('x', 256))"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    shutil.rmtree(PLACE)


def test_a_limit_saves_what_the_package_draws_less(tmp_path: Path) -> None:
    """The first one is killed under the low limit; the next one puts it back and goes on."""
    with mariadb_server() as server, busy(server, STATEMENT), animated_rapl(limit_w=NOW_W) as rapl:
        limit = rapl.root / "intel-rapl:0" / "constraint_0_power_limit_uw"
        command = [QJOULE, "cap", str(server.pid), "--watts", str(LOW_W), "--energy", rapl.option]
        command += ["--replications", "3", "--seconds", "3", "--settle-seconds", "0.5"]
        command += ["--idle", "proportional", "--json", "-o", str(tmp_path / "caps")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as first:
            until(lambda: float(limit.read_text() or 0) == LOW_W * 1e6, seconds=120)
            first.kill()
        assert (PLACE / SAVED).exists()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert float(limit.read_text()) == NOW_W * 1e6
        assert not (PLACE / SAVED).exists()
    printed = json.loads(done.stdout)
    assert (printed["grades"], printed["reference"]) == (["measured"], NOW_W)
    now, low = printed["levels"]
    assert (now["level"], low["level"]) == (NOW_W, LOW_W)
    assert (now["runs"], low["runs"]) == (3, 3)
    assert low["verdict"].startswith("saves "), printed
    watts = [level["power_w"]["mean"] for level in (now, low)]
    assert watts[1] == pytest.approx(LOW_W, rel=0.05)
    assert watts[0] > 40
    joules = [level["j_per_call"]["mean"] for level in (now, low)]
    assert low["saved"]["mean"] == pytest.approx(joules[0] - joules[1])
    assert low["p95_ns"]["mean"] > 0
