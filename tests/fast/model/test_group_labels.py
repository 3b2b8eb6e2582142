# SPDX-License-Identifier: Apache-2.0
"""Labels of groups: keys in a memory, causes of background work, and named CPU time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from qjoule.engine.class_keys import ClassKeys
from qjoule.engine.groups import group_owners
from qjoule.model.coverage import by_server
from qjoule.model.labels import (
    KERNEL,
    NOT_SELECTED,
    OTHER_SHAPES,
    PREPARED_BEFORE,
    SEVERAL,
    GroupLabel,
    LabelIndex,
    background,
    process,
)
from qjoule.model.ledger import Ledger
from qjoule.model.result import ServerCoverage
from qjoule.servers.decoding import causes_of
from qjoule.trace.meta import Server
from qjoule.trace.roles import thread_role

SERVERS = (Server(1, "shop-db", "mysql", "8.0"), Server(2, "other-db", "mysql", "8.4"))


def statement(name: str, server: str = "shop-db", **keys: str) -> GroupLabel:
    named = (("fingerprint", name), *keys.items())
    return GroupLabel("queries", named, "select a", server)


def keys(*labels: GroupLabel) -> tuple[list[int], list[int]]:
    """The key and the release of each label's class."""
    class_keys, releases = ClassKeys.of(labels, SERVERS).of_classes(np.arange(len(labels)))
    return class_keys.tolist(), releases.tolist()


def test_a_shape_has_one_key_on_all_servers_of_a_kind_and_a_release_on_each() -> None:
    class_keys, releases = keys(statement("ab"), statement("ab", "other-db"), statement("cd"))
    assert class_keys[0] == class_keys[1] != class_keys[2]
    assert releases[0] == releases[2] != releases[1]


def test_kinds_of_work_do_not_share_keys() -> None:
    labels = (statement("x"), background("shop-db", "x"), process("x"), statement("x", "pg"))
    class_keys, _ = keys(*labels)
    assert len(set(class_keys)) == 4
    assert all(class_keys)


@pytest.mark.parametrize("name", [PREPARED_BEFORE, OTHER_SHAPES, NOT_SELECTED, SEVERAL, ""])
def test_what_stands_for_several_shapes_is_not_remembered(name: str) -> None:
    assert keys(statement(name))[0] == [0]


def query(server: str, *, named: bool) -> GroupLabel:
    return GroupLabel("queries", (("fingerprint", server),), "", server, "socket", (), named)


def test_other_groupings_have_no_keys_but_the_kernel_has() -> None:
    by_user = GroupLabel("queries", (("user", "ann"),), "select a", "shop-db")
    both = statement("ab", user="ann")
    class_keys, _ = keys(by_user, both, KERNEL)
    assert class_keys[:2] == [0, 0]
    assert class_keys[2]


@pytest.mark.parametrize(
    ("thread", "causes"),
    [
        ("ib_srv_wkr-3", ("caused_by_writes",)),
        ("page_cleaner", ("caused_by_writes",)),
        ("ib_io_rd-2", ("caused_by_reads",)),
        ("ib_tpool_worker", ("serves_queries",)),
        ("autovac worker", ("caused_by_writes",)),
        ("io worker", ("caused_by_reads",)),
        ("io_thd_1", ("serves_queries",)),
        ("bio_lazy_free", ("caused_by_writes",)),
        ("signal_handler", ()),
        ("jemalloc_bg_thd", ()),
        ("", ()),
    ],
)
def test_the_cause_of_a_threads_work_is_named_only_if_it_is_known(
    thread: str, causes: tuple[str, ...]
) -> None:
    assert causes_of(thread_role(thread, "server")) == causes


def test_background_rows_name_causes_only_for_servers_of_a_known_protocol() -> None:
    role = "page_cleaner"
    owner = {"kind": "server", "role": role, "comm": role, "process_comm": "mariadbd"}
    owners = pa.Table.from_pylist([{"owner": n, "server": n, **owner} for n in (1, 2)])
    index = LabelIndex()
    group_owners(owners, lambda server: f"server {server}", index, by_thread=(2,))
    flags = {label.server: label.flags for label in index.labels}
    assert flags["server 1"] == ("caused_by_writes",)
    assert flags["server 2"] == ()


def test_coverage_is_the_share_of_a_servers_time_in_named_queries_and_roles() -> None:
    labels = [
        query("db:1", named=True),
        query("db:1", named=False),
        background("db:1", "purge"),
        background("db:1", "(unknown)"),
        query("other:2", named=True),
        background("idle:3", "main"),
        process("cron"),
        KERNEL,
    ]
    ledger = Ledger((), (0,))
    ledger.grow(len(labels))
    ledger.cpu_ns[:] = np.array([600, 100, 250, 50, 7, 0, 10_000, 10_000])
    first, second = by_server(ledger, labels)
    assert first == ServerCoverage("db:1", 1000, 600, 250)
    assert first.named == 0.85
    assert (second.server, second.named) == ("other:2", 1.0)
