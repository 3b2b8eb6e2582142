# SPDX-License-Identifier: Apache-2.0
"""How many new statements per second become shapes, beside an earlier revision.

    .venv/bin/python bench/bench_shapes.py --old v0.1        # any revision of this repository
    .venv/bin/python bench/bench_shapes.py                   # this tree alone

Every statement is new, so no cache of statements helps. Both trees run in turn, several times, each
in a process of its own; the ratio of each pair does not depend on how busy the machine is, as long
as that does not change within a pair.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAIRS, STATEMENTS = 7, 20_000
TEMPLATES = [
    "SELECT c FROM sbtest{0} WHERE id={1}",
    "SELECT DISTINCT c FROM sbtest{0} WHERE id BETWEEN {1} AND {2} ORDER BY c",
    "INSERT INTO orders{0} (a,b,c) VALUES ({1},'x{2}',NOW()),(2,'y',NOW())",
    "UPDATE `stock{0}` SET `quantity`=`quantity`-{1}, note='it''s {2}' WHERE `id` = {1} LIMIT 1",
    "DELETE FROM sessions{0} WHERE k IN ({1}, {2}, 9) /* app='shop' */",
    "SELECT o.id, u.name FROM orders{0} o JOIN users u ON u.id = o.user_id "
    "WHERE o.status = 'a{1}' AND o.created > '2020-01-{2}' ORDER BY o.created DESC LIMIT 10",
]

#: Tokens of digests alone.
_TOKENS = ("?, ...", "(?)", "(?) /* , ... */", "(...)", "(...) /* , ... */", "(tok_id)", "<>")


def statements() -> list[bytes]:
    """Statements of different shapes: each names a table of its own."""
    return [
        TEMPLATES[number % len(TEMPLATES)].format(number, number * 7, number * 13).encode()
        for number in range(STATEMENTS)
    ]


def rate(with_ids: bool) -> float:
    """New shapes per second of CPU time of the package that this process imports."""
    from qjoule.servers.decoding import fingerprint  # noqa: PLC0415
    from qjoule.servers.decoding_types import Build  # noqa: PLC0415 - the tree to measure
    from qjoule.servers.mysql.other_ids import ids_of  # noqa: PLC0415
    from qjoule.shapes.reserved_words import RESERVED  # noqa: PLC0415
    from qjoule.shapes.rules import COUNTS, Lexis  # noqa: PLC0415

    # Not the numbers of any server: they cost the same.
    keywords = [*map(chr, range(33, 127)), *sorted(RESERVED), *_TOKENS]
    build = Build("mysql", "9.7", {word: number for number, word in enumerate(keywords)})

    rules = COUNTS[Lexis.BACKTICK].default
    begin = time.process_time()
    for statement in statements():
        fingerprint(statement, 1)
        if with_ids:
            list(ids_of(statement, False, rules, build))
    return STATEMENTS / (time.process_time() - begin)


def _measured(tree: Path, with_ids: bool) -> float:
    command = [sys.executable, __file__, "--rate", *(["--ids"] if with_ids else [])]
    environment = {"PYTHONPATH": str(tree / "attribution/src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _extracted(revision: str, into: Path) -> Path:
    command = ["git", "archive", revision, "attribution"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(into)
    sources = [str(path) for path in (into / "attribution/shapes").glob("*.c")]
    if sources:
        module = into / "attribution/src/qjoule/shapes/_shapes.abi3.so"
        flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000"]
        flags += ["-fvisibility=hidden", f"-I{sysconfig.get_path('include')}"]
        subprocess.run(["cc", *flags, *sources, "-o", str(module)], check=True)
    return into


def main() -> None:
    """Prints rates of both trees and the ratio of the pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--old", help="a revision to compare with")
    parser.add_argument("--ids", action="store_true", help="with the ids of MySQL's tools")
    parser.add_argument("--rate", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rate:
        print(rate(options.ids))
        return
    with tempfile.TemporaryDirectory() as directory:
        old_tree = _extracted(options.old, Path(directory)) if options.old else None
        new, old = [], []
        for _ in range(PAIRS):
            new.append(_measured(ROOT, options.ids))
            if old_tree:
                old.append(_measured(old_tree, options.ids))
    print(f"this tree: {max(new):,.0f} shapes/s (median {statistics.median(new):,.0f})")
    if old:
        ratios = sorted(new_rate / old_rate for new_rate, old_rate in zip(new, old, strict=True))
        print(f"{options.old}: {max(old):,.0f} shapes/s (median {statistics.median(old):,.0f})")
        print(f"ratio of pairs: {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
