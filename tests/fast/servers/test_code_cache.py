# SPDX-License-Identifier: Apache-2.0
"""A JVM's compiled code, read from its memory: valid, changing, and made by an attacker."""

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
from servers.toy_code_cache import ADDRESSES, EVIL, OFFSETS, Block, toy_jvm

every_block = pytest.mark.parametrize("block", [ADDRESSES, OFFSETS], ids=["java-11", "java-23"])


@every_block
def test_methods_and_stubs_are_listed(block: Block, tmp_path: Path) -> None:
    with toy_jvm(tmp_path, block) as jvm:
        cache = jvm.cache()
        code = cache.code()
        assert cache.call_stub == 0x7000
        kinds = [CodeKind.METHOD, CodeKind.METHOD, CodeKind.INTERPRETER]
        assert [blob.kind for blob in code] == kinds
        assert code[0].begin == jvm.heap + 100
        assert (code[0].end - code[0].begin, code[0].frame_words, code[0].complete) == (90, 5, 4)
        assert [blob.compile_id for blob in code] == [11, 12, 0]
        names = [cache.name(blob) for blob in code]
    assert names == ["shop.Orders.read", f"x.{EVIL}.<init>", "Interpreter"]


def test_another_method_at_the_same_address_has_not_the_firsts_name(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as jvm:
        cache = jvm.cache()
        before = cache.code()
        jvm.set(13, "_compile_id")  # compiled again
        assert cache.name(before[0]) == ""
        assert cache.name(before[1])
        assert cache.code()[0] == replace(before[0], compile_id=13)


@every_block
@pytest.mark.parametrize(
    ("names", "value", "count_left"),
    [
        (("_length",), 0, 0),
        (("_length",), (1 << 32) - 1, 0),
        (("_code_begin", "_code_offset"), 0, 2),
        (("_code_begin", "_code_offset"), (1 << 31) - 1, 2),
        (("_code_end", "_data_offset"), (1 << 31) - 1, 2),
        (("_size",), -1, 2),
    ],
)
def test_blocks_that_contradict_themselves_are_left_out(
    names: tuple[str, ...], value: int, count_left: int, block: Block, tmp_path: Path
) -> None:
    with toy_jvm(tmp_path, block) as jvm:
        jvm.set(value, *names)
        assert len(jvm.cache().code()) == count_left


@pytest.mark.parametrize("missing", ["_code_offset", "_method", "_compile_id"])
def test_a_jvm_of_an_unknown_layout_is_refused(missing: str, tmp_path: Path) -> None:
    block = tuple(row for row in OFFSETS if row[1] != missing)
    with toy_jvm(tmp_path, block) as jvm, pytest.raises(CannotRead, match="does not show"):
        jvm.cache()


def test_a_field_that_is_no_number_is_refused(tmp_path: Path) -> None:
    block = tuple((*row[:2], "Unknown", row[3]) for row in OFFSETS if row[1] == "_size")
    block += tuple(row for row in OFFSETS if row[1] != "_size")
    why = "the size of CodeBlob::_size"
    with toy_jvm(tmp_path, block) as jvm, pytest.raises(CannotRead, match=why):
        jvm.cache()


def test_a_method_that_has_gone_has_no_name(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as jvm:
        cache = jvm.cache()
        code = cache.code()
        jvm.change(code[0].method + 8, struct.pack("<Q", 1 << 50))
        assert cache.name(code[0]) == ""


def test_a_frame_of_no_possible_size_is_not_followed(tmp_path: Path) -> None:
    with toy_jvm(tmp_path) as jvm:
        jvm.set(-5, "_frame_size")
        assert jvm.cache().code()[0].frame_words == 0


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
    with toy_jvm(tmp_path) as jvm:
        jvm.change(begin, blocks + bytes(size))
        jvm.change(jvm.code_heap + 8, struct.pack("<QQ", begin, end))
        jvm.change(jvm.code_heap + 40, struct.pack("<Q", 3))
        begin_s = time.process_time()
        with pytest.raises(CannotRead, match="too much code"):
            jvm.cache().code()
        assert time.process_time() - begin_s < 5


@every_block
def test_damaged_memory_gives_an_error_or_other_code(block: Block, tmp_path: Path) -> None:
    """Nothing else is raised, and nothing runs on."""
    draw = random.Random(35)
    with toy_jvm(tmp_path, block) as jvm:
        intact = bytes(jvm.memory.content)
        for _ in range(60):
            content = bytearray(intact)
            for _ in range(draw.randint(1, 40)):
                content[draw.randrange(4096, len(content))] = draw.randrange(256)
            jvm.memory.path.write_bytes(content)
            with suppress(CannotRead):
                cache = jvm.cache()
                for blob in cache.code():
                    assert blob.begin <= blob.end
                    cache.name(blob)
