#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the fields that BPF programs read with a kernel's BTF, and names what is missing.

usage: btf_fields.py [--btf FILE] OBJECT...

FILE is /sys/kernel/btf/vmlinux unless given.
Exits with 0 (all are there), 1 (some are missing or have another size), 2 (a file is no BTF).
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import btf

KERNEL = Path("/sys/kernel/btf/vmlinux")


@dataclass(frozen=True, order=True)
class Finding:
    """A field that a kernel lacks, or has with another size."""

    field: str
    wrong: str  #: what is wrong with it


def compare(types: btf.Btf, access: btf.Access, kernel: btf.Btf) -> Finding | None:
    """None if the kernel has the field, of the kind and size that the program expects."""
    name = ".".join((access.root, *filter(None, access.path)))
    composite = kernel.composites.get(access.root)
    if composite is None:
        return Finding(name, f"this kernel has no struct {access.root}")
    field_type = None
    for step in filter(None, access.path):
        field_type = kernel.field(composite, step)
        if field_type is None:
            return Finding(name, f"struct {composite.name or access.root} has no field {step}")
        composite = kernel.plain(field_type)
    if field_type is None:
        return None
    here_bytes, there_bytes = types.bytes_of(access.type_id), kernel.bytes_of(field_type)
    if here_bytes != there_bytes and access.path[-1] != "regs":
        return Finding(name, f"has {there_bytes} bytes there and {here_bytes} here")
    return None


def findings(objects: Iterable[Path], kernel: btf.Btf) -> tuple[set[str], dict[Finding, set[str]]]:
    """The names of all fields that are read, and what is wrong, with the programs that read it.

    Raises:
        btf.BadBtf: an object has no BTF.
    """
    fields: set[str] = set()
    wrong: dict[Finding, set[str]] = defaultdict(set)
    for path in objects:
        types, read = btf.accesses(path)
        for access in read:
            if not access.path:
                continue
            fields.add(".".join((access.root, *filter(None, access.path))))
            finding = compare(types, access, kernel)
            if finding is not None:
                wrong[finding].add(access.program)
    return fields, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Which fields that BPF programs read a kernel lacks."
    )
    parser.add_argument("--btf", type=Path, default=KERNEL, help=f"default: {KERNEL}")
    parser.add_argument("object", type=Path, nargs="+", help="compiled BPF programs")
    chosen = parser.parse_args()
    try:
        fields, wrong = findings(chosen.object, btf.read(chosen.btf))
    except (OSError, btf.BadBtf) as error:
        print(f"btf_fields: {error}", file=sys.stderr)
        return 2
    for finding, programs in sorted(wrong.items()):
        print(f"{finding.field}: {finding.wrong} (read by {', '.join(sorted(programs))})")
    print(f"{len(fields)} fields, {len(wrong)} of them missing or of another size in {chosen.btf}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
