# SPDX-License-Identifier: Apache-2.0
"""The live view's screen as a file."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.reporters.live_lines import screen_document
from qjoule.reporters.live_state import ViewState


def export(state: ViewState) -> str:
    """Writes the screen as JSON to a new file; returns its name.

    The file is in the working directory. If that is not writable, because root has been given up,
    it is in the directory for temporary files. Raises `QjouleError` if neither works.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    text = json.dumps(screen_document(state), indent=1, allow_nan=False) + "\n"
    reason = ""
    for directory in ("", tempfile.gettempdir()):
        path = Path(directory, f"qjoule-top-{stamp}.json")
        try:
            # A new file, for the user alone: shapes may contain what others should not read.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            reason = f"{path}: {error.strerror}"
        else:
            return str(path)
    raise QjouleError(reason)
