# SPDX-License-Identifier: Apache-2.0
"""Which probes PostgreSQL's symbol rung has where the kernel shows reads of sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qjoule.servers.elf import Symbol
from qjoule.servers.postgres.signatures import FUNCTIONS, READING, Role
from qjoule.servers.postgres.support import SUPPORT
from qjoule.servers.probe_site import ProbeSite
from qjoule.servers.resolution import Probe, Resolution


def _probe(role: Role) -> Probe:
    site = ProbeSite.__new__(ProbeSite)
    return Probe(role, Symbol.__new__(Symbol), site)


FOUND = Resolution(
    (1, 2),
    boundary=tuple(_probe(role) for role in (*FUNCTIONS, *READING)),
    facts={"statement": 8, "authenticates": 16, "portal-start": 152},
)


def test_reads_leave_one_probe_for_every_query() -> None:
    assert SUPPORT.ends_at_reads(FOUND)
    roles = {probe.role for probe in SUPPORT.boundary(FOUND, next_read=True)}
    assert roles == {Role.FAILED, *READING}
    roles = {probe.role for probe in SUPPORT.boundary(FOUND, next_read=False)}
    assert roles == set(FUNCTIONS)


@pytest.mark.parametrize("fact", ["statement", "authenticates", "portal-start"])
def test_reads_need_what_is_read_of_a_backend(fact: str) -> None:
    assert not SUPPORT.ends_at_reads(replace(FOUND, facts={**FOUND.facts, fact: 0}))


@pytest.mark.parametrize("role", READING)
def test_reads_need_each_probe(role: Role) -> None:
    boundary = tuple(probe for probe in FOUND.boundary if probe.role != role)
    assert not SUPPORT.ends_at_reads(replace(FOUND, boundary=boundary))
