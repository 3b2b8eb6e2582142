#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the type information (BTF) of a kernel image to stdout, as /sys/kernel/btf/vmlinux has it.

usage: kernel_btf.py IMAGE >vmlinux.btf

The image may be uncompressed or compressed by gzip, as arm64's are. Kernel packages contain no
vmlinux. Layout: include/uapi/linux/btf.h, struct btf_header.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

HEADER = struct.Struct("<HBBIIIII")  #: magic, version, flags, header size, types and strings
MAGIC = struct.pack("<HBBI", 0xEB9F, 1, 0, HEADER.size)


def kernel_btf(image: bytes) -> bytes:
    """The BTF of the kernel itself. Raises `ValueError` if there is none."""
    if image.startswith(b"\x1f\x8b"):
        image = gzip.decompress(image)
    found = b""
    at = image.find(MAGIC)
    while at >= 0:
        *_, types_at, types, strings_at, strings = HEADER.unpack_from(image, at)
        end = at + HEADER.size + max(types_at + types, strings_at + strings)
        if end <= len(image) and end - at > len(found):
            found = image[at:end]
        at = image.find(MAGIC, at + 1)
    if not found:
        raise ValueError("no BTF: the image is packed, or was built without CONFIG_DEBUG_INFO_BTF")
    return found


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(kernel_btf(Path(sys.argv[1]).read_bytes()))
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
