# SPDX-License-Identifier: Apache-2.0
"""Encodes a profile for pprof: the message `Profile` of profile.proto, compressed by gzip.

https://github.com/google/pprof/blob/main/proto/profile.proto

Texts are indices into a table. Each frame is a function and a location with the same number. A
location has no address, since many frames are not code. All belong to one mapping, which has the
trace's name.
"""

from __future__ import annotations

import gzip
from collections import defaultdict

from qjoule.export.profile import Numbered, Profile, ProfileSample
from qjoule.protobuf import fields, message, number, numbers, packed, text


def pprof(profile: Profile) -> bytes:
    """Returns the compressed file. It depends on the profile only."""
    return gzip.compress(pprof_message(profile), mtime=0)


def pprof_message(profile: Profile) -> bytes:
    """Returns the message, not compressed."""
    texts, frames = Numbered(entries=[""]), Numbered[str](1)
    types = [
        message(1, number(1, texts[kind]) + number(2, texts[unit])) for kind, unit in profile.types
    ]
    samples = [message(2, _sample(sample, texts, frames)) for sample in profile.samples]
    mapping = message(3, number(1, 1) + number(5, texts[profile.title]) + number(7, 1))
    places = [message(4, _location(index)) for index in frames.values()]
    functions = [message(5, _function(index, texts[name])) for name, index in frames.items()]
    notes = packed(13, [texts[line] for line in profile.notes])
    about = number(9, profile.began_unix_ns) + number(10, profile.duration_ns) + notes
    table = [text(6, line) for line in texts]
    # Perfetto recognises the file by its beginning, the types.
    parts = (*types, *samples, mapping, *places, *functions, *table, about)
    return b"".join(parts)


def _sample(sample: ProfileSample, texts: Numbered[str], frames: Numbered[str]) -> bytes:
    """Encodes a sample. pprof puts the innermost frame first."""
    labels = (
        message(3, number(1, texts[name]) + number(2, texts[value]))
        for name, value in sample.labels
    )
    places = packed(1, [frames[name] for name in reversed(sample.frames)])
    return places + packed(2, sample.values) + b"".join(labels)


def _location(at: int) -> bytes:
    """Encodes a `Location` in the only mapping."""
    return number(1, at) + number(2, 1) + message(4, number(1, at))


def _function(at: int, name: int) -> bytes:
    return number(1, at) + number(2, name) + number(3, name)


def read_pprof(content: bytes, host: str) -> Profile:
    """Decodes the output of `pprof_message`. Raises `ValueError` or `LookupError` if it is
    malformed."""
    submessages: defaultdict[int, list[bytes]] = defaultdict(list)
    values: dict[int, int] = {}
    for field, value in fields(content):
        if isinstance(value, bytes):
            submessages[field].append(value)
        else:
            values[field] = value
    texts = [line.decode("utf-8", "replace") for line in submessages[6]]
    names: dict[int, str] = {}
    for entry in submessages[5]:
        function = _integer_fields(entry)
        names[function[1]] = texts[function[2]]
    return Profile(
        texts[_integer_fields(submessages[3][0])[5]],
        host,
        values.get(9, 0),
        values.get(10, 0),
        tuple(texts[line] for notes in submessages[13] for line in numbers(notes)),
        tuple(
            (texts[value_type[1]], texts[value_type[2]])
            for value_type in map(_integer_fields, submessages[1])
        ),
        tuple(_parse_sample(sample, texts, names) for sample in submessages[2]),
    )


def _parse_sample(content: bytes, texts: list[str], names: dict[int, str]) -> ProfileSample:
    frames: list[str] = []
    values: list[int] = []
    labels: list[tuple[str, str]] = []
    for field, value in fields(content):
        if not isinstance(value, bytes):
            raise ValueError("it has a sample that is none")
        if field == 1:
            frames = [names[location] for location in numbers(value)]
        elif field == 2:
            values = list(numbers(value))
        else:
            label = _integer_fields(value)
            labels.append((texts[label[1]], texts[label[2]]))
    return ProfileSample(tuple(reversed(frames)), tuple(labels), tuple(values))


def _integer_fields(content: bytes) -> dict[int, int]:
    """Returns a message's integer fields by field number."""
    return {field: value for field, value in fields(content) if isinstance(value, int)}
