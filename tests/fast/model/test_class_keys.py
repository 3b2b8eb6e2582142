# SPDX-License-Identifier: Apache-2.0
"""Under which keys a memory keeps shapes, roles and processes."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.engine.class_keys import ClassKeys
from qjoule.model.labels import (
    KERNEL,
    NOT_SELECTED,
    OTHER_SHAPES,
    PREPARED_BEFORE,
    SEVERAL,
    GroupLabel,
    background,
    process,
)
from qjoule.trace.meta import Server

SERVERS = (Server(1, "shop-db", "mysql", "8.0"), Server(2, "other-db", "mysql", "8.4"))


def statement(name: str, server: str = "shop-db", **keys: str) -> GroupLabel:
    named = (("fingerprint", name), *keys.items())
    return GroupLabel("queries", named, "select a", server)


def keys(*labels: GroupLabel) -> tuple[list[int], list[int]]:
    found, releases = ClassKeys.of(labels, SERVERS).of_classes(np.arange(len(labels)))
    return found.tolist(), releases.tolist()


def test_a_shape_has_one_key_on_all_servers_of_a_kind_and_a_release_on_each() -> None:
    found, releases = keys(statement("ab"), statement("ab", "other-db"), statement("cd"))
    assert found[0] == found[1] != found[2]
    assert releases[0] == releases[2] != releases[1]


def test_kinds_of_work_do_not_share_keys() -> None:
    labels = (statement("x"), background("shop-db", "x"), process("x"), statement("x", "pg"))
    found, _ = keys(*labels)
    assert len(set(found)) == 4
    assert all(found)


@pytest.mark.parametrize("name", [PREPARED_BEFORE, OTHER_SHAPES, NOT_SELECTED, SEVERAL, ""])
def test_what_stands_for_several_shapes_is_not_remembered(name: str) -> None:
    assert keys(statement(name))[0] == [0]


def test_other_groupings_have_no_keys_but_the_rest_has() -> None:
    by_user = GroupLabel("queries", (("user", "ann"),), "select a", "shop-db")
    both = statement("ab", user="ann")
    found, _ = keys(by_user, both, KERNEL)
    assert found[:2] == [0, 0]
    assert found[2]


def test_a_class_without_a_label_has_no_key() -> None:
    found, releases = ClassKeys([], {}).of_classes(np.array([0, 7]))
    assert not found.any() and not releases.any()


def test_names_of_clients_do_not_break_the_hash() -> None:
    odd = process(b"\xff\x00\n".decode(errors="surrogateescape"))
    assert keys(odd)[0][0]
