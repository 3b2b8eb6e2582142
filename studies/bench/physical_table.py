# SPDX-License-Identifier: Apache-2.0
"""Turns files of `qjoule physical --full` into the table of the README, as Markdown.

    python studies/bench/physical_table.py FILE...

Verdicts are computed here from what was measured. A file may come from anybody: every field is
checked, and one bad file stops the table. Exit code 0: a table; 1: a file that is no kit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from qjoule.errors import QjouleError
from qjoule_studies.physical.judgement import THRESHOLD, Verdict
from qjoule_studies.physical.kit.document import MAX_BYTES, Document, KitError, parse
from qjoule_studies.physical.kit.figures import Pair, pairs

MOST_FILES = 1_000
_HEAD = (
    "CPU",
    "cores",
    "attribution",
    "servers",
    "pairs judged",
    "error, median",
    "error, worst",
    "intervals held",
    "agree",
    "differ",
    "cannot tell",
)


def load(paths: Sequence[Path]) -> list[Document]:
    """The kits in these files. Raises `QjouleError` if one is no kit or repeats another."""
    if len(paths) > MOST_FILES:
        raise QjouleError(f"{len(paths)} files: at most {MOST_FILES}")
    documents: list[Document] = []
    path_of_digest: dict[bytes, Path] = {}
    for path in paths:
        text = _read(path)
        try:
            document = parse(text)
        except KitError as error:
            raise QjouleError(f"{path} is no kit: {error}") from error
        digest = hashlib.sha256(repr(document).encode()).digest()
        if digest in path_of_digest:
            raise QjouleError(f"{path} has the same runs as {path_of_digest[digest]}")
        path_of_digest[digest] = path
        documents.append(document)
    return documents


def table(documents: Sequence[Document], threshold: float = THRESHOLD) -> str:
    """Markdown: a row for each kit, in the order of CPU names; a line about all pairs below."""
    rows = sorted(
        (_row(document, pairs(document, threshold)) for document in documents),
        key=lambda row: row[:4],
    )
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *map(_line, rows)]
    errors = [
        pair.error
        for document in documents
        for pair in pairs(document, threshold)
        if pair.error is not None and _is_real(document)
    ]
    count = sum(map(_is_real, documents))
    if errors:
        within = sum(error <= threshold for error in errors)
        lines += [
            "",
            f"{count} machines, {len(errors)} pairs: median error {median(errors):.1%}, "
            f"worst {max(errors):.1%}, {within} within {threshold:.0%}.",
        ]
    else:
        lines += ["", "No pair of a machine with energy counters has been judged yet."]
    return "\n".join(lines) + "\n"


def _is_real(document: Document) -> bool:
    """Whether the machine's own counters were read, where qjoule found them."""
    return document.energy.grade == "measured" and not document.energy.given


def _row(document: Document, judged: Sequence[Pair]) -> list[str]:
    machine, model = document.machine, document.model
    with_error = [pair for pair in judged if pair.error is not None]
    errors = [pair.error for pair in with_error if pair.error is not None]
    verdicts = [pair.verdict for pair in judged]
    cores_per_package = machine.cores // max(machine.packages, 1)
    cores = f"{machine.packages} \N{MULTIPLICATION SIGN} {cores_per_package}"
    weight = "counters" if model.weight == "counters" else "CPU time"
    notes = "" if document.complete else " (ended early)"
    notes += "" if document.energy.grade == "measured" else f" ({document.energy.grade})"
    notes += " (given counters)" if document.energy.given else ""
    return [
        machine.cpu + notes,
        cores,
        f"{weight}, {'calibrated' if model.calibrated else 'not calibrated'}",
        ", ".join(f"{server.product} {server.version}".strip() for server in document.servers),
        f"{len(errors)} of {len(judged)}",
        f"{median(errors):.1%}" if errors else "",
        f"{max(errors):.1%}" if errors else "",
        f"{sum(pair.held for pair in with_error)} of {2 * len(with_error)}",
        *(str(verdicts.count(verdict)) for verdict in (Verdict.AGREES, Verdict.DIFFERS)),
        str(verdicts.count(Verdict.CANNOT_TELL)),
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Text of a file as Markdown that is nothing but text."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#!&~" else char for char in text)


def _read(path: Path) -> bytes:
    """At most one byte more than a kit may have; regular files only."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise QjouleError(f"{path} is no regular file")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise QjouleError(f"cannot read {path}: {error.strerror}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--threshold", type=float, default=100 * THRESHOLD, metavar="PCT", help="error that passes"
    )
    options = parser.parse_args(arguments)
    if not 0 < options.threshold <= 100:
        parser.error("--threshold must be above 0 and at most 100")
    try:
        print(table(load(options.files), options.threshold / 100), end="")
    except QjouleError as error:
        print(f"physical_table: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
