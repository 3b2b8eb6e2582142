# SPDX-License-Identifier: Apache-2.0
"""What a JVM has compiled, as its memory tells it: right, changing, and made by an attacker."""

from __future__ import annotations

import random
import struct
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers.jvm.code_cache import BLOBS_MAX, CodeKind
from qjoule.servers.jvm.hotspot import CannotRead
from servers.toy_code_cache import EVIL, toy_jvm


def test_methods_and_stubs_are_listed(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as found:
        cache = found.cache()
        code = cache.code()
        assert cache.call_stub == 0x7000
        kinds = [CodeKind.METHOD, CodeKind.METHOD, CodeKind.INTERPRETER]
        assert [one.kind for one in code] == kinds
        assert code[0].begin == found.heap + 100
        assert (code[0].end - code[0].begin, code[0].frame_words, code[0].complete) == (90, 5, 4)
        assert [one.compile_id for one in code] == [11, 12, 0]
        names = [cache.name(one) for one in code]
    assert names == ["shop.Orders.read", f"x.{EVIL}.<init>", "Interpreter"]


def test_another_method_at_the_same_address_has_not_the_firsts_name(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as found:
        cache = found.cache()
        before = cache.code()
        found.change(found.blob + 48, struct.pack("<i", 13))  # compiled again
        assert cache.name(before[0]) == ""
        assert cache.name(before[1])
        assert cache.code()[0] == replace(before[0], compile_id=13)


@pytest.mark.parametrize(
    ("place", "content", "left"),
    [
        ("length", struct.pack("<Q", 0), 0),
        ("length", struct.pack("<Q", 1 << 60), 0),
        ("begin", struct.pack("<Q", 0), 2),
        ("begin", struct.pack("<Q", (1 << 64) - 1), 2),
        ("size", struct.pack("<i", -1), 2),
    ],
)
def test_blocks_that_contradict_themselves_are_left_out(
    place: str, content: bytes, left: int, tmp_path: Path
) -> None:
    with toy_jvm(tmp_path) as found:
        offsets = {"length": 0, "begin": 16 + 24, "size": 16 + 8}
        found.change(found.heap + offsets[place], content)
        assert len(found.cache().code()) == left


def test_a_method_that_has_gone_has_no_name(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as found:
        cache = found.cache()
        code = cache.code()
        found.change(code[0].method + 8, struct.pack("<Q", 1 << 50))
        assert cache.name(code[0]) == ""


def test_a_frame_of_no_possible_size_is_not_followed(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as found:
        found.change(found.blob + 12, struct.pack("<i", -5))
        assert found.cache().code()[0].frame_words == 0


def test_code_without_end_is_refused(tmp_path: Path) -> None:
    """A heap of the smallest blocks, more than any JVM has."""
    size, begin = 64, 1 << 20
    end = begin + (BLOBS_MAX + 9) * size
    blocks = b"".join(
        struct.pack("<QB7xQiiiiQQ", size >> 3, 1, 0, 48, 0, 0, 0, at + 49, at + 50).ljust(
            size, b"\0"
        )
        for at in range(begin, end, size)
    )
    with toy_jvm(tmp_path) as found:
        found.change(begin, blocks + bytes(size))
        found.change(found.code_heap + 8, struct.pack("<QQ", begin, end))
        found.change(found.code_heap + 40, struct.pack("<Q", 3))
        begin_s = time.process_time()
        with pytest.raises(CannotRead, match="too much code"):
            found.cache().code()
        assert time.process_time() - begin_s < 5


def test_damaged_memory_gives_an_error_or_other_code(tmp_path: Path) -> None:
    """Nothing else is raised, and nothing runs on."""
    draw = random.Random(35)
    with toy_jvm(tmp_path) as found:
        whole = bytes(found.memory.content)
        for _ in range(60):
            content = bytearray(whole)
            for _ in range(draw.randint(1, 40)):
                content[draw.randrange(4096, len(content))] = draw.randrange(256)
            found.memory.path.write_bytes(content)
            with suppress(CannotRead):
                cache = found.cache()
                for one in cache.code():
                    assert one.begin <= one.end
                    cache.name(one)
