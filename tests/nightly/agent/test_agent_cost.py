# SPDX-License-Identifier: Apache-2.0
"""What the agent says of its own cost, beside a real server under load."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from metrics_pages import total
from qjoule.agent import handover
from qjoule.agent.budget import DegradationLevel
from qjoule.agent.handover import Handover
from qjoule.metrics.counters import Counters, Limits
from qjoule.root_part.protocol import Account, Kind, Refused, ask
from qjoule_studies.servers.mysql import mariadb_server
from tracing.agent import INTERVAL_S, Agent, value
from tracing.attaching import load, load_bytes
from tracing.root_part import RootPart, root_part

pytestmark = [pytest.mark.root, pytest.mark.timeout(240)]

PROGRAM = "on_fork"
CALLS = 500
TRACING = 26  #: BPF_PROG_TYPE_TRACING


def kernels_own(root: RootPart) -> Account:
    """The sum over the root part's programs (bpf_prog_show_fdinfo(), kernel/bpf/syscall.c)."""
    found: dict[int, tuple[int, int]] = {}
    for info in Path(f"/proc/{root.pid}/fdinfo").iterdir():
        fields = dict(line.partition(":\t")[::2] for line in info.read_text().splitlines())
        if "prog_type" in fields and "run_cnt" in fields:
            found[int(fields["prog_id"])] = int(fields["run_cnt"]), int(fields["run_time_ns"])
    return Account(sum(runs for runs, _ in found.values()), sum(ns for _, ns in found.values()))


def forks(number: int) -> None:
    for _ in range(number):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def test_accounts_are_the_kernels_own() -> None:
    with root_part() as root, root.tracer() as tracer:
        assert sum(one.runs for one in asked(root)) == 0, "nothing is loaded"
        load(tracer, load_bytes(PROGRAM))
        ask(tracer, Kind.ATTACH, text=bytes(16) + PROGRAM.encode())
        ask(tracer, Kind.DONE)
        first = ask(root.connection, Kind.ACCOUNTS)
        before = first.accounts()[TRACING]
        forks(50)
        low = kernels_own(root)
        now = asked(root)
        high = kernels_own(root)
        os.close(first.fd)
        assert low.runs <= now[TRACING].runs <= high.runs and low.ns <= now[TRACING].ns <= high.ns
        assert now[TRACING].runs - before.runs >= 50 and now[TRACING].ns > before.ns
        assert not any(one.runs for at, one in enumerate(now) if at != TRACING)


def asked(root: RootPart) -> tuple[Account, ...]:
    reply = ask(root.connection, Kind.ACCOUNTS)
    os.close(reply.fd)
    return reply.accounts()


def test_only_the_command_may_ask() -> None:
    with root_part() as root, root.tracer() as tracer:
        with pytest.raises(Refused):
            ask(tracer, Kind.ACCOUNTS)
        load(tracer, load_bytes(PROGRAM))  # and the refusal did no harm
        assert asked(root)


@pytest.mark.server
def test_a_level_is_handed_over_and_counts_stay_exact(tmp_path: Path) -> None:
    """Level 2: windows of 500 ms, no hardware counters, no uprobes where sockets suffice."""
    with mariadb_server() as server, server.connect() as connection:
        agent = Prepared(tmp_path, server.pid)
        try:
            agent.started()
            first = agent.until(lambda page: "qjoule_budget_level" in {key[0] for key in page}, "")
            assert value(first, "qjoule_budget_level") == 2
            assert value(first, "qjoule_budget_ratio") == 0.001
            cursor = connection.cursor()
            before = total(agent.samples(), "qjoule_query_calls_total")
            for number in range(CALLS):
                cursor.execute(f"select {number} + 41")
                cursor.fetchall()
            agent.until(
                lambda page: total(page, "qjoule_query_calls_total") >= before + CALLS, "calls"
            )
            time.sleep(3 * INTERVAL_S)
            assert total(agent.samples(), "qjoule_query_calls_total") == before + CALLS
            name = "qjoule_budget_used_ratio"
            page = agent.until(
                lambda page: (value(page, name, part="programs") or 0) > 0, "a sample of the cost"
            )
            assert (value(page, name, part="programs") or 0) < 0.9
            assert 0 <= (value(page, name, part="processes") or 0) < 1
            assert value(page, name, part="traps") == 0, "the socket mode has no uprobes"
            agent.stop()
        finally:
            agent.close()
    left = handover.take(agent.store, Limits(), time.time())
    assert left.continued and left.shed.level == 2


class Prepared(Agent):
    """An agent whose predecessor left level 2."""

    def configure(self, *, store: bool = True, shapes: int = 100, more: str = "") -> None:
        super().configure(store=store, shapes=shapes, more=f'[budget]\ncpu = "0.1%"\n{more}')
        now_s = time.time()
        shed = DegradationLevel(level=2, since_s=now_s)
        handover.leave(self.store, Handover(Counters(Limits(), now_s), shed=shed))
        os.chown(self.store / handover.NAME, self.store.stat().st_uid, -1)
