# SPDX-License-Identifier: Apache-2.0
"""Encodes a profile for OpenTelemetry: the body of a request to a receiver's
`/v1development/profiles`, built from the messages of the package opentelemetry-proto.

The signal is in development: another version of the protocol may be incompatible. Each value type
is a profile of its own. Texts, functions, stacks and attributes are indices into tables, whose
first entries are empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qjoule import __version__
from qjoule.engine.stacks import Stack
from qjoule.errors import QjouleError
from qjoule.export.profile import Numbered, Profile

if TYPE_CHECKING:
    from opentelemetry.proto.profiles.v1development import profiles_pb2 as pb
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource


def otlp_profiles(profile: Profile) -> bytes:
    """Returns the body in protobuf. Raises QjouleError if opentelemetry-proto is not installed."""
    try:
        from opentelemetry.proto.collector.profiles.v1development import (  # noqa: PLC0415
            profiles_service_pb2 as service,
        )
    except ImportError:
        raise QjouleError(
            "OpenTelemetry's messages are not installed: pip install 'qjoule[otlp]'"
        ) from None
    request = service.ExportProfilesServiceRequest()
    of_resource = request.resource_profiles.add()
    _describe(of_resource.resource, profile)
    scope = of_resource.scope_profiles.add()
    scope.scope.name, scope.scope.version = "qjoule", __version__
    tables = _Tables(request.dictionary)
    for index in reversed(range(len(profile.types))):  # viewers show the first one first
        kind, unit = profile.types[index]
        of_type = scope.profiles.add(
            time_unix_nano=profile.began_unix_ns, duration_nano=profile.duration_ns
        )
        of_type.sample_type.type_strindex = tables.texts[kind]
        of_type.sample_type.unit_strindex = tables.texts[unit]
        of_type.attribute_indices.append(tables.notes(profile.notes))
        for sample in profile.samples:
            if sample.values[index]:
                of_type.samples.add(
                    stack_index=tables.stacks[sample.frames],
                    attribute_indices=[tables.attributes[label] for label in sample.labels],
                    values=[sample.values[index]],
                )
    tables.write()
    return request.SerializeToString(deterministic=True)


def _describe(resource: Resource, profile: Profile) -> None:
    for name, value in (("service.name", "qjoule"), ("host.name", profile.host)):
        resource.attributes.add(key=name).value.string_value = value


class _Tables:
    """The dictionary of a request."""

    def __init__(self, dictionary: pb.ProfilesDictionary) -> None:
        self._dictionary = dictionary
        self.texts = Numbered(entries=[""])
        self.stacks = Numbered[Stack](1)
        self.attributes = Numbered[tuple[str, str]](2)  #: 0 is empty, 1 holds the notes

    def notes(self, lines: tuple[str, ...]) -> int:
        """Returns the index of the attribute that holds the profile's notes."""
        if not self._dictionary.attribute_table:
            self._dictionary.attribute_table.add()
            attribute = self._dictionary.attribute_table.add(
                key_strindex=self.texts["pprof.profile.comment"]
            )
            for line in lines:
                attribute.value.array_value.values.add().string_value = line
        return 1

    def write(self) -> None:
        """Writes the tables of everything that has been numbered."""
        to, frames = self._dictionary, Numbered[str](1)
        to.mapping_table.add()
        to.link_table.add()
        to.stack_table.add()
        for stack in self.stacks:
            to.stack_table.add(location_indices=[frames[name] for name in reversed(stack)])
        to.function_table.add()
        to.location_table.add()
        for name, at in frames.items():
            to.function_table.add(name_strindex=self.texts[name])
            to.location_table.add().lines.add(function_index=at)
        for key, value in self.attributes:
            to.attribute_table.add(key_strindex=self.texts[key]).value.string_value = value
        to.string_table.extend(self.texts)
