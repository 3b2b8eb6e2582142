# SPDX-License-Identifier: Apache-2.0
"""A profile as pprof writes it: the message `Profile` of profile.proto, compressed by gzip.

https://github.com/google/pprof/blob/main/proto/profile.proto

Texts are numbers in a table of texts. A frame is a function and a place in it of the same number:
without an address, since a name is all that is known of those that are no code. All are in one
mapping, which has the trace's name.
"""

from __future__ import annotations

import gzip

from qjoule.export.profile import Numbered, Profile, ProfileSample
from qjoule.protobuf import message, number, packed, text


def pprof(profile: Profile) -> bytes:
    """The file. The same profile gives the same bytes."""
    texts, frames = Numbered(known=[""]), Numbered[str](1)
    types = [
        message(1, number(1, texts[kind]) + number(2, texts[unit])) for kind, unit in profile.types
    ]
    samples = [message(2, _sample(one, texts, frames)) for one in profile.samples]
    mapping = message(3, number(1, 1) + number(5, texts[profile.title]) + number(7, 1))
    places = [message(4, _place(at)) for at in frames.values()]
    functions = [message(5, _function(at, texts[name])) for name, at in frames.items()]
    notes = packed(13, [texts[line] for line in profile.notes])
    about = number(9, profile.began_unix_ns) + number(10, profile.duration_ns) + notes
    table = [text(6, one) for one in texts]
    # Perfetto recognises the file by its beginning, the types.
    parts = (*types, *samples, mapping, *places, *functions, *table, about)
    return gzip.compress(b"".join(parts), mtime=0)


def _sample(sample: ProfileSample, texts: Numbered[str], frames: Numbered[str]) -> bytes:
    """The innermost frame comes first."""
    labels = (
        message(3, number(1, texts[name]) + number(2, texts[value]))
        for name, value in sample.labels
    )
    places = packed(1, [frames[name] for name in reversed(sample.frames)])
    return places + packed(2, sample.values) + b"".join(labels)


def _place(at: int) -> bytes:
    """In the only mapping, which has names of functions."""
    return number(1, at) + number(2, 1) + message(4, number(1, at))


def _function(at: int, name: int) -> bytes:
    return number(1, at) + number(2, name) + number(3, name)
