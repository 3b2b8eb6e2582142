# SPDX-License-Identifier: Apache-2.0
"""Certificates of servers that are tests' own."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(directory: Path) -> tuple[Path, Path]:
    """A new key and its certificate, in files of this directory."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    files = ["-nodes", "-subj", "/CN=test", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*new, *files], check=True, capture_output=True)
    return key, certificate
