# SPDX-License-Identifier: Apache-2.0
"""Encodes a profile as speedscope's JSON: a profile for each value type, energy first.

https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts

The format has no labels; the first frames distinguish the queries.
"""

from __future__ import annotations

import json
from typing import Any

from qjoule.export.profile import Numbered, Profile

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = ("nanoseconds",)  #: units of ours that speedscope knows


def speedscope(profile: Profile) -> str:
    """Returns the file. Values below 0 (a residual) cannot be drawn and are left out."""
    frames = Numbered[str]()
    order = range(len(profile.types) - 1, -1, -1)
    document = {
        "$schema": _SCHEMA,
        "name": profile.title,
        "exporter": "qjoule",
        "activeProfileIndex": 0,
        "profiles": [_profile_of_type(profile, at, frames) for at in order],
        "shared": {"frames": [{"name": name} for name in frames]},
    }
    return json.dumps(document) + "\n"


def _profile_of_type(profile: Profile, index: int, frames: Numbered[str]) -> dict[str, Any]:
    kind, unit = profile.types[index]
    samples = [sample for sample in profile.samples if sample.values[index] > 0]
    return {
        "type": "sampled",
        "name": f"{kind} in {unit}",
        "unit": unit if unit in _UNITS else "none",
        "startValue": 0,
        "endValue": sum(sample.values[index] for sample in samples),
        "samples": [[frames[name] for name in sample.frames] for sample in samples],
        "weights": [sample.values[index] for sample in samples],
    }
