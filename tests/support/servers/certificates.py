# SPDX-License-Identifier: Apache-2.0
"""Self-signed certificates for test servers."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Creates a new key and its certificate in files of this directory."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    files = ["-nodes", "-subj", "/CN=test", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*new, *files], check=True, capture_output=True)
    return key, certificate
