# SPDX-License-Identifier: Apache-2.0
"""Tags in the current context: threads, tasks, generators, and any values from an application."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Generator, Iterator

from hypothesis import given
from hypothesis import strategies as st

from qjoule_drivers import current_tags, set_trace, tag
from qjoule_drivers.context import EMPTY, MAX_KEY, MAX_TAGS, MAX_VALUE, clean, merged, trace_context


def test_tags_are_added_and_taken_back() -> None:
    assert current_tags() == {}
    with tag(endpoint="checkout", tenant=42):
        assert current_tags() == {"endpoint": "checkout", "tenant": "42"}
        with tag(tenant="7", job=b"nightly"):
            assert current_tags() == {"endpoint": "checkout", "tenant": "7", "job": "nightly"}
            with tag(endpoint=None):
                assert current_tags() == {"tenant": "7", "job": "nightly"}
        assert current_tags() == {"endpoint": "checkout", "tenant": "42"}
    assert current_tags() == {}
    try:
        with tag(endpoint="x"):
            raise KeyError
    except KeyError:
        assert current_tags() == {}


def test_one_object_in_several_threads_at_once() -> None:
    shared = tag(who="shared")
    inside, leave = threading.Barrier(3), threading.Event()
    after: list[dict[str, str]] = []

    def work() -> None:
        with tag(own=threading.current_thread().name):
            with shared:
                inside.wait(60)
                leave.wait(60)
            after.append(current_tags())

    threads = [threading.Thread(target=work, name=f"t{n}") for n in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    leave.set()
    for thread in threads:
        thread.join()
    assert sorted(tags["own"] for tags in after) == ["t0", "t1"]
    assert all(tags.keys() == {"own"} for tags in after)


def test_functions_and_coroutines_are_tagged() -> None:
    @tag(job="plain")
    def plain(a: int, *, b: int = 2) -> tuple[int, dict[str, str]]:
        return a + b, current_tags()

    @tag(job="coroutine")
    async def coroutine() -> dict[str, str]:
        await asyncio.sleep(0)
        return current_tags()

    async def both() -> list[dict[str, str]]:
        return list(await asyncio.gather(coroutine(), coroutine()))

    assert plain(1, b=4) == (5, {"job": "plain"})
    assert plain.__name__ == "plain"
    assert asyncio.run(both()) == [{"job": "coroutine"}] * 2
    assert current_tags() == {}


def test_a_generator_is_tagged_and_its_consumer_is_not() -> None:
    tags_inside: list[dict[str, str]] = []

    @tag(job="rows")
    def rows() -> Iterator[int]:
        for n in range(3):
            tags_inside.append(current_tags())
            yield n

    @tag(job="rows")
    async def later_rows() -> AsyncIterator[int]:
        for n in range(3):
            tags_inside.append(current_tags())
            yield n

    async def consume() -> list[dict[str, str]]:
        return [current_tags() async for _ in later_rows()]

    assert [current_tags() for _ in rows()] == [{}] * 3
    assert asyncio.run(consume()) == [{}] * 3
    assert tags_inside == [{"job": "rows"}] * 6


def test_a_generator_closed_in_another_context_leaves_it_alone() -> None:
    def suspended() -> Generator[None]:
        with tag(inner="1"):
            yield

    running = suspended()
    contextvars.copy_context().run(next, running)

    def elsewhere() -> dict[str, str]:
        with tag(outer="2"):
            running.close()
            return current_tags()

    tags_elsewhere: list[dict[str, str]] = []
    thread = threading.Thread(target=lambda: tags_elsewhere.append(elsewhere()))
    thread.start()
    thread.join()
    assert tags_elsewhere == [{"outer": "2"}]


class _HostileType(type):
    def __hash__(cls) -> int:
        raise RuntimeError

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError


class _Hostile(metaclass=_HostileType):
    def __hash__(self) -> int:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError


def test_values_that_are_no_tags_are_left_out() -> None:
    for _ in range(2):
        with tag(good="1", bad=_Hostile(), empty="", blank="\x00\n", listed=[1, 2]):
            assert current_tags() == {"good": "1", "listed": "[1, 2]"}
    with tag(**{f"k{n}": n for n in range(100)}):
        assert len(current_tags()) == MAX_TAGS
    with tag(big="x" * 10_000):
        assert current_tags() == {"big": "x" * MAX_VALUE}


@given(
    st.one_of(st.text(), st.integers(), st.none(), st.binary()),
    st.one_of(st.text(), st.binary(), st.floats(), st.integers(), st.lists(st.text())),
)
def test_cleaned_tags_are_bounded_single_lines(key: object, value: object) -> None:
    cleaned = clean(key, value)
    if cleaned is None:
        return
    name, text = cleaned
    assert 0 < len(name) <= MAX_KEY
    assert 0 < len(text) <= MAX_VALUE
    assert name.isascii()
    assert text.isprintable() or not any(ord(c) < 32 for c in text)
    assert text.encode("utf-8")  # no lone surrogates


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_the_same_tags_are_the_same_object(tags: dict[str, str]) -> None:
    assert merged(EMPTY, tags) is merged(EMPTY, dict(tags))


def test_equal_values_of_other_types_keep_their_texts() -> None:
    texts = [merged(EMPTY, {"v": value}).of["v"] for value in ("1", 1, True, 1.0, b"1", 1, True)]
    assert texts == ["1", "1", "True", "1.0", "1", "1", "True"]
    assert merged(EMPTY, {"v": 1}) is merged(EMPTY, {"v": 1})


def test_a_trace_that_is_set_in_a_block_stays_and_its_tags_do_not() -> None:
    trace = (bytes(range(16)), bytes(range(8)))
    try:
        with tag(a="1"):
            set_trace(trace)
            assert (current_tags(), trace_context()) == ({"a": "1"}, trace)
            with tag(b="2"):
                assert trace_context() == trace
        assert (current_tags(), trace_context()) == ({}, trace)
    finally:
        set_trace(None)
    assert trace_context() is None


def test_memory_for_sets_of_tags_is_bounded() -> None:
    base = merged(EMPTY, {"base": "1"})
    for number in range(10_000):
        merged(base, {"id": str(number)})
    assert len(base.merged) <= 4096  # sets of tags that are remembered
