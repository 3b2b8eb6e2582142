# SPDX-License-Identifier: Apache-2.0
"""Feeds damaged server files to their parsers: `python tests/support/fuzz/servers_fuzz.py elf 30`.

Each input is a real one with random changes from a fixed seed, so that runs are repeatable. A
finding is any exception but QjouleError, more than 2 s of CPU time for one input, or more than 512
MiB of memory. Its input is written to a file, and the file's name is printed.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qjoule.errors import QjouleError

if TYPE_CHECKING:
    from fuzz.servers_targets import Target

SEED = 20261122
CPU_SECONDS = 2.0
MEMORY_BYTES = 512 << 20
_INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 63)


def mutated(chance: random.Random, target: Target) -> bytes:
    """One of the inputs with random changes."""
    content = bytearray(chance.choice(target.inputs))
    for _ in range(chance.randrange(1, 8)):
        at = chance.randrange(len(content) + 1)
        kind = chance.randrange(7)
        if kind == 0:
            del content[at : at + chance.randrange(1, 64)]
        elif kind == 1:
            end = at + chance.randrange(1, 256)
            content[at:at] = content[at:end] * chance.choice((1, 2, 50))
        elif kind == 2 and target.words:
            content[at:at] = chance.choice(target.words) * chance.choice((1, 1, 3, 200))
        elif kind == 3:
            size = chance.choice((1, 2, 4, 8))
            value = chance.choice(_INTERESTING) % (1 << 8 * size)
            content[at : at + size] = value.to_bytes(size, "little")
        elif kind == 4 and at < len(content):
            content[at] ^= 1 << chance.randrange(8)
        elif kind == 5:
            content[at : at + 1] = bytes([chance.randrange(256)])
        else:
            other = chance.choice(target.inputs)
            start = chance.randrange(len(other) + 1)
            content[at:at] = other[start : start + chance.randrange(512)]
    return bytes(content[: 1 << 20])


def finding(target: Target, content: bytes) -> str:
    """What is wrong with reading this input; empty: nothing."""
    before = time.process_time()
    try:
        target.read(content)
    except QjouleError:
        pass
    except Exception:
        return traceback.format_exc().strip()
    took = time.process_time() - before
    return f"{took:.1f} s of CPU time" if took > CPU_SECONDS else ""


def run(target: Target, seconds: float, seed: int, keep: str | None = None) -> Iterator[str]:
    """Yields findings, and finally the number of inputs. Inputs of findings are kept in `keep`."""
    chance = random.Random(seed)
    end, count = time.monotonic() + seconds, 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + MEMORY_BYTES
    while time.monotonic() < end:
        content = mutated(chance, target)
        count += 1
        why = finding(target, content)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > most:
            why = f"more than {MEMORY_BYTES >> 20} MiB"
            most = 1 << 62  # print each only once
        if why:
            with tempfile.NamedTemporaryFile(prefix="qjoule-fuzz-", dir=keep, delete=False) as kept:
                kept.write(content)
            yield f"input {count}, kept in {kept.name}: {why}"
    yield f"{count} inputs"


def main() -> int:
    sys.path[:0] = [str(Path(__file__).parents[1])]  # the directory of the tests' modules
    from fuzz.servers_targets import PARSERS  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parser", choices=PARSERS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        lines = list(run(PARSERS[given.parser](Path(directory)), given.seconds, given.seed))
    for line in lines:
        print(f"{given.parser}: {line}")
    return 1 if len(lines) > 1 else 0


if __name__ == "__main__":
    raise SystemExit(main())
