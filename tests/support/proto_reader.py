# SPDX-License-Identifier: Apache-2.0
"""Google's protobuf reads what we have written, by the parts of the formats that we write.

Types of fields: a name of `_SCALARS` or of a message; with `*` a list of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int64": _FIELD.TYPE_INT64,
    "uint64": _FIELD.TYPE_UINT64,
    "double": _FIELD.TYPE_DOUBLE,
    "string": _FIELD.TYPE_STRING,
}
Schema = Mapping[str, Mapping[str, tuple[int, str]]]

#: https://github.com/google/pprof/blob/main/proto/profile.proto
PPROF: Schema = {
    "Profile": {
        "sample_type": (1, "ValueType*"),
        "sample": (2, "Sample*"),
        "mapping": (3, "Mapping*"),
        "location": (4, "Location*"),
        "function": (5, "Function*"),
        "string_table": (6, "string*"),
        "time_nanos": (9, "int64"),
        "duration_nanos": (10, "int64"),
        "comment": (13, "int64*"),
    },
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Sample": {"location_id": (1, "uint64*"), "value": (2, "int64*"), "label": (3, "Label*")},
    "Label": {"key": (1, "int64"), "str": (2, "int64")},
    "Mapping": {"id": (1, "uint64"), "filename": (5, "int64"), "has_functions": (7, "uint64")},
    "Location": {"id": (1, "uint64"), "mapping_id": (2, "uint64"), "line": (4, "Line*")},
    "Line": {"function_id": (1, "uint64")},
    "Function": {"id": (1, "uint64"), "name": (2, "int64"), "system_name": (3, "int64")},
}
#: https://perfetto.dev/docs/reference/trace-packet-proto
PERFETTO: Schema = {
    "Trace": {"packet": (1, "Packet*")},
    "Packet": {
        "timestamp": (8, "uint64"),
        "sequence": (10, "uint64"),
        "clock_snapshot": (6, "Clocks"),
        "track_event": (11, "Event"),
        "interned_data": (12, "Interned"),
        "sequence_flags": (13, "uint64"),
        "defaults": (59, "Defaults"),
        "track_descriptor": (60, "Track"),
    },
    "Defaults": {"timestamp_clock_id": (58, "uint64")},
    "Clocks": {"clocks": (1, "Clock*"), "primary": (2, "uint64")},
    "Clock": {"clock_id": (1, "uint64"), "timestamp": (2, "uint64")},
    "Track": {
        "uuid": (1, "uint64"),
        "name": (2, "string"),
        "parent_uuid": (5, "uint64"),
        "counter": (8, "Counter"),
    },
    "Counter": {"unit_name": (6, "string")},
    "Event": {
        "debug_annotations": (4, "Annotation*"),
        "type": (9, "uint64"),
        "name_iid": (10, "uint64"),
        "track_uuid": (11, "uint64"),
        "double_counter_value": (44, "double"),
    },
    "Annotation": {
        "name_iid": (1, "uint64"),
        "int_value": (4, "int64"),
        "string_value_iid": (17, "uint64"),
    },
    "Interned": {"event_names": (2, "Text*"), "names": (3, "Text*"), "values": (29, "Text*")},
    "Text": {"iid": (1, "uint64"), "text": (2, "string")},
}


def read(schema: Schema, name: str, content: bytes) -> Any:
    """The message. Fails where it has a field that the schema lacks."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="t", syntax="proto3")
    for kind, fields in schema.items():
        described = file.message_type.add(name=kind)
        for field, (number, declared) in fields.items():
            type_name = declared.removesuffix("*")
            added = described.field.add(name=field, number=number)
            added.label = _FIELD.LABEL_REPEATED if declared != type_name else _FIELD.LABEL_OPTIONAL
            added.type = _SCALARS.get(type_name, _FIELD.TYPE_MESSAGE)
            if type_name not in _SCALARS:
                added.type_name = f".t.{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))()
    message.ParseFromString(content)
    size = len(message.SerializeToString())
    message.DiscardUnknownFields()
    assert len(message.SerializeToString()) == size, "an unknown field"
    return message
