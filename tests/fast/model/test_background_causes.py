# SPDX-License-Identifier: Apache-2.0
"""A background row says what of queries causes its work, where that is known of its threads."""

from __future__ import annotations

import pyarrow as pa
import pytest

from qjoule.engine.groups import group_owners
from qjoule.model.labels import LabelIndex
from qjoule.servers.decoding import causes_of
from qjoule.trace.roles import thread_role


@pytest.mark.parametrize(
    ("thread", "cause"),
    [
        ("ib_srv_wkr-3", "caused_by_writes"),
        ("ib_pg_flush_co", "caused_by_writes"),
        ("page_cleaner", "caused_by_writes"),
        ("ib_io_rd-2", "caused_by_reads"),
        ("ib_tpool_worker", "serves_queries"),
        ("checkpointer", "caused_by_writes"),
        ("autovac worker", "caused_by_writes"),
        ("io worker", "caused_by_reads"),
        ("io_thd_1", "serves_queries"),
        ("bio_lazy_free", "caused_by_writes"),
    ],
)
def test_the_cause_of_a_thread_s_work(thread: str, cause: str) -> None:
    assert causes_of(thread_role(thread, "server")) == (cause,)


@pytest.mark.parametrize("role", ["mariadbd", "signal_handler", "backend", "", "jemalloc_bg_thd"])
def test_without_a_known_cause_nothing_is_claimed(role: str) -> None:
    assert causes_of(role) == ()


def test_rows_of_servers_with_queries_have_it(role: str = "page_cleaner") -> None:
    owner = {"kind": "server", "role": role, "comm": role, "process_comm": "mariadbd"}
    owners = pa.Table.from_pylist([{"owner": n, "server": n, **owner} for n in (1, 2)])
    index = LabelIndex()
    group_owners(owners, lambda server: f"server {server}", index, by_thread=(2,))
    flags = {label.server: label.flags for label in index.labels}
    assert flags["server 1"] == ("caused_by_writes",)
    assert flags["server 2"] == (), "its protocol is unknown, so its threads may be anything"
