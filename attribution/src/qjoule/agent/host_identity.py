# SPDX-License-Identifier: Apache-2.0
"""The id by which a fleet's rollups tell hosts apart, also hosts of one name."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from qjoule.machine.files import read_text
from qjoule.machine.identity import ROOT, machine_hash
from qjoule.trace.durable import write_whole

_KEY = b"qjoule.rollups"
_FILE = "host-id"
_DIGITS = 16


def host_id(store: Path, root: Path = ROOT) -> str:
    """16 hex digits. Without a machine id: random ones, which the store keeps.

    Raises `OSError`: they cannot be kept.
    """
    if found := machine_hash(root, _KEY):
        return found[:_DIGITS]
    kept = read_text(store / _FILE)
    if re.fullmatch(rf"[0-9a-f]{{{_DIGITS}}}", kept):
        return kept
    made = secrets.token_hex(_DIGITS // 2)
    write_whole(store / _FILE, made.encode(), durable=True, mode=0o600)
    return made
