# SPDX-License-Identifier: Apache-2.0
"""Labels of groups: keys in a memory, causes of background work, and named CPU time."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.engine.class_keys import ClassKeys
from qjoule.model.assemble import by_server
from qjoule.model.labels import (
    KERNEL,
    OTHER_SHAPES,
    SEVERAL,
    TEXT_LOST,
    GroupLabel,
    background,
    process,
)
from qjoule.model.ledger import Ledger
from qjoule.model.result import ServerCoverage
from qjoule.servers.registry import causes_of
from qjoule.trace.meta import Server
from qjoule.trace.vocabulary import thread_role

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


@pytest.mark.parametrize("name", [TEXT_LOST, OTHER_SHAPES, SEVERAL, ""])
def test_what_stands_for_several_shapes_is_not_remembered(name: str) -> None:
    assert keys(statement(name))[0] == [0]


def query(server: str, *, named: bool) -> GroupLabel:
    return GroupLabel("queries", (("fingerprint", server),), "", server, "socket", (), named)


@pytest.mark.parametrize(
    ("thread", "causes"),
    [
        ("ib_srv_wkr-3", ("caused_by_writes",)),
        ("ib_io_rd-2", ("caused_by_reads",)),
        ("ib_tpool_worker", ("serves_queries",)),
        ("autovac worker", ("caused_by_writes",)),
        ("signal_handler", ()),
        ("", ()),
    ],
)
def test_the_cause_of_a_threads_work_is_named_only_if_it_is_known(
    thread: str, causes: tuple[str, ...]
) -> None:
    assert causes_of(thread_role(thread, "server")) == causes


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
