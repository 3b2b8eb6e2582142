# SPDX-License-Identifier: Apache-2.0
"""Which keys have series of their own: a bounded number, and not whatever a flood brings."""

from __future__ import annotations

from qjoule.metrics.admission import MAX_CANDIDATES, Admission


def settled(limit: int = 3, lifetime_s: float = 100.0) -> Admission[str]:
    """Members a, b and c, last seen at 10 s."""
    found: Admission[str] = Admission(limit, lifetime_s)
    for now_s in (0.0, 10.0):
        assert found.admit({"a": 3, "b": 2, "c": 1}, now_s) == []
    return found


def test_a_key_is_admitted_when_it_is_seen_again() -> None:
    found: Admission[str] = Admission(3, 100.0)
    found.admit({"a": 1}, 0.0)
    assert "a" not in found
    found.admit({"a": 1}, 10.0)
    assert "a" in found


def test_of_too_many_the_largest_are_admitted() -> None:
    found: Admission[str] = Admission(2, 100.0)
    for now_s in (0.0, 10.0):
        found.admit({"a": 1, "b": 3, "c": 2}, now_s)
    assert [key in found for key in "abc"] == [False, True, True]


def test_members_stay_while_they_are_seen_whatever_comes() -> None:
    found = settled()
    for step in range(2, 50):
        assert found.admit({"a": 1, "b": 1, "c": 1, "d": 10**9}, step * 10.0) == []
    assert "d" not in found


def test_a_member_unseen_for_a_lifetime_gives_way_to_one_that_needs_its_place() -> None:
    found = settled()
    found.admit({"a": 1, "b": 1, "d": 1}, 60.0)
    assert found.admit({"a": 1, "b": 1, "d": 1}, 100.0) == [], "c was seen 90 s ago"
    assert found.admit({"a": 1, "b": 1, "d": 1}, 120.0) == ["c"]
    assert "d" in found and "c" not in found


def test_without_need_nobody_leaves() -> None:
    found = settled(limit=4)
    assert found.admit({"a": 1}, 10_000.0) == []
    assert "b" in found


def test_ten_thousand_keys_that_come_once_are_not_admitted() -> None:
    found = settled(limit=10)
    for step in range(100):
        found.admit({f"{step}-{n}": 10**6 for n in range(100)}, 20.0 + step)
    assert len(found) == 3
    assert len(found._seen) <= MAX_CANDIDATES


def test_a_smaller_limit_has_those_leave_that_were_seen_longest_ago() -> None:
    found = settled()
    found.admit({"c": 1}, 20.0)
    found.limit = 1
    assert found.admit({"c": 1}, 30.0) == ["a", "b"]
    assert len(found) == 1


def test_a_limit_of_none_admits_nobody() -> None:
    found: Admission[str] = Admission(0, 100.0)
    for now_s in (0.0, 10.0, 1000.0):
        assert found.admit({"a": 1}, now_s) == []
    assert len(found) == 0
