# SPDX-License-Identifier: Apache-2.0
"""Two rungs check each other: a Cassandra recorded by agent and by sockets at the same time.

The agent shows which thread works for which request, to the nanosecond. The statistical rung
regresses the CPU time of all serving threads on the requests that came. So a request's cost by the
agent must lie in the other's interval. The agent does not see some work: decoding, sending, and a
pool's threads that spin while waiting. That work is the same for short and long requests, so it
cancels in their difference.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import qjoule.engine.attribute as attributing
from qjoule.engine import accounts
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution, Row
from qjoule.model.span_sums import CPU_TIME
from qjoule.model.spans import Learned, learn
from qjoule.model.statistical import Costs
from qjoule.trace.reader import Trace
from servers.cassandra import Client
from servers.process import DatabaseServer
from tracing.recording import Recorder

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(180)]

ENERGY = ("--energy", "estimated:5,10,20,40")
SECONDS, PHASE_S = 8.4, 0.3
NEARLY = 1.25  #: some of what the agent does not mark grows with a request
WARM, LEAST = 200, 100  #: requests of each shape: until most code is compiled, and to compare
#: Rows of the partition that each shape reads, and the shape.
NARROW, WIDE = 100, 4800
COUNT, GREATEST = (
    "select count(*) from agree.t where p = ?",
    "select max(v) from agree.t where p = ?",
)


@dataclass(frozen=True)
class Compared:
    """The same requests by each rung. `costs`: in CPU time, by shape as in `shapes`."""

    agent: Attribution
    statistical: Attribution
    shapes: list[str]
    costs: Costs

    def interval_ns(self, shape: str) -> tuple[float, float]:
        """The interval for a request's CPU time, by regression, at twice its 95 % width.

        At 95 %, one of two shapes would be outside in every tenth correct run.
        """
        at = self.shapes.index(shape)
        low_ns, high_ns = float(self.costs.low[at]), float(self.costs.high[at])
        half_ns = (high_ns - low_ns) / 2
        return low_ns - half_ns, high_ns + half_ns


@pytest.fixture(scope="module")
def compared(cassandra: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    directory = tmp_path_factory.mktemp("agree")
    with cassandra.connect() as client:
        _make_table(client)
        _load(client, 0.0, least=WARM)
        with (
            _recording(directory / "agent", cassandra.pid, "--agent"),
            _recording(directory / "socket", cassandra.pid),
        ):
            _load(client, SECONDS, least=LEAST)
    agent = attributing.attribute(Trace(directory / "agent"))
    return _compared(agent, Trace(directory / "socket"))


def _compared(agent: Attribution, socket: Trace) -> Compared:
    """With the costs from which the rows of the statistical rung are made."""
    shapes: list[str] = []
    found: list[Costs] = []

    def learned(ledger: Ledger) -> dict[str, Learned]:
        costs = learn(ledger)
        (of,) = costs.values()
        assert ledger.spans is not None
        shapes.extend(ledger.spans.roles.labels[group].shape for group in of.shapes)
        found.append(of.costs[CPU_TIME])
        return costs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "learn", learned)
        statistical = attributing.attribute(socket)
    return Compared(agent, statistical, shapes, found[0])


@contextmanager
def _recording(directory: Path, pid: int, *options: str) -> Iterator[None]:
    with ExitStack() as stack:
        recorder = Recorder(directory, "--pid", str(pid), "--ring-mb", "64", *ENERGY, *options)
        stack.callback(recorder.end)
        recorder.attached()
        yield
        assert recorder.stop() == 0, recorder.words


def _make_table(client: Client) -> None:
    client.execute(
        "CREATE KEYSPACE IF NOT EXISTS agree WITH replication ="
        " {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    client.execute("CREATE TABLE IF NOT EXISTS agree.t (p int, i int, v int, PRIMARY KEY (p, i))")
    for partition, rows in enumerate((NARROW, WIDE)):
        for first in range(0, rows, 100):
            inserts = "".join(
                f"INSERT INTO agree.t (p, i, v) VALUES ({partition}, {i}, {i % 97});"
                for i in range(first, first + 100)
            )
            client.execute(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")


def _load(client: Client, seconds: float, least: int) -> None:
    """Phases of one shape, of the other, of both in some proportion, and of neither.

    Continues until there were `least` requests of each.
    """
    mix, calls = random.Random(5), [0, 0]
    ends_s = time.monotonic() + seconds
    while (now_s := time.monotonic()) < ends_s or min(calls) < least:
        share = mix.choice((0.0, 0.25, 0.5, 1.0, None))
        while time.monotonic() < now_s + PHASE_S:
            if share is None:
                time.sleep(PHASE_S / 10)
                continue
            which = mix.random() < share
            calls[which] += 1
            client.execute(
                "SELECT max(v) FROM agree.t WHERE p = 1"
                if which
                else "SELECT count(*) FROM agree.t WHERE p = 0"
            )


def _row(found: Attribution, shape: str) -> Row:
    (row,) = (row for row in found.rows if row.shape == shape)
    return row


def test_rungs_count_the_same(compared: Compared) -> None:
    for shape in (COUNT, GREATEST):
        agent, statistical = _row(compared.agent, shape), _row(compared.statistical, shape)
        assert (agent.rung, statistical.rung) == ("agent", "statistical")
        assert agent.calls == statistical.calls > 0


def test_rungs_agree_on_what_requests_take(compared: Compared) -> None:
    """Agreement, unless the machine is so busy that requests or windows last as long as spans.

    Regression reports that case. It counts at least what the agent counts, and the difference
    between a long and a short request is the same by both.
    """
    each_ns = {}
    for shape in (COUNT, GREATEST):
        agent, statistical = _row(compared.agent, shape), _row(compared.statistical, shape)
        if compared.costs.reason:
            assert "too little time" in compared.costs.reason
            assert "untold" in statistical.flags
            continue
        low_ns, high_ns = compared.interval_ns(shape)
        assert low_ns <= statistical.cpu_ns / statistical.calls <= high_ns or (
            "untold" in statistical.flags
        )
        each_ns[shape] = agent.cpu_ns / agent.calls
        assert each_ns[shape] <= high_ns
    if each_ns:
        assert each_ns[GREATEST] > 2 * each_ns[COUNT]
        more_ns = each_ns[GREATEST] - each_ns[COUNT]
        short_ns, long_ns = compared.interval_ns(COUNT), compared.interval_ns(GREATEST)
        low_ns, high_ns = long_ns[0] - short_ns[1], long_ns[1] - short_ns[0]
        assert low_ns / NEARLY <= more_ns <= high_ns * NEARLY
