# SPDX-License-Identifier: Apache-2.0
"""A receiver of OTLP in this process, what is in a profile, and the program that sends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesServiceRequest,
)

#: By frames, the outermost first, and labels.
Values = dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[int]]


@dataclass
class Receiver:
    """Keeps requests; answers with the given status codes in turn, then always with the last."""

    codes: list[int] = field(default_factory=lambda: [200])
    headers: dict[str, str] = field(default_factory=dict)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    page: bytes = b""  #: what it answers to GET
    profile: bytes = b""  #: the same at /profile


@contextmanager
def receiver(*codes: int, **headers: str) -> Iterator[Receiver]:
    its = Receiver(list(codes) or [200], headers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            its.got.append(({**headers, ":path": self.path}, content))
            self.send_response(its.codes.pop(0) if len(its.codes) > 1 else its.codes[0])
            for name, value in its.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(its.profile if self.path == "/profile" else its.page)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    its.url = f"http://127.0.0.1:{server.server_address[1]}/api"
    try:
        yield its
    finally:
        server.shutdown()
        server.server_close()


def program(uid: int, *arguments: str) -> list[str]:
    """The command that sends as this user."""
    code = f"import os; os.geteuid = lambda: {uid}; from qjoule.push.__main__ import main; main()"
    return [sys.executable, "-c", code, *arguments]


def of_otlp(content: bytes) -> dict[str, Values]:
    """A profile's values by sample type, then by stack and labels."""
    request = ExportProfilesServiceRequest.FromString(content)
    tables = request.dictionary
    text = tables.string_table
    for table in (tables.function_table, tables.location_table, tables.stack_table):
        assert not table[0].ByteSize(), "a zero value comes first"
    assert text[0] == "" and not tables.attribute_table[0].ByteSize()
    by_type: dict[str, Values] = {}
    for profile in request.resource_profiles[0].scope_profiles[0].profiles:
        values = by_type[text[profile.sample_type.type_strindex]] = {}
        for sample in profile.samples:
            places = tables.stack_table[sample.stack_index].location_indices
            lines = [tables.location_table[at].lines[0] for at in reversed(places)]
            names = [tables.function_table[line.function_index].name_strindex for line in lines]
            attributes = [tables.attribute_table[at] for at in sample.attribute_indices]
            labels = tuple(
                (text[pair.key_strindex], pair.value.string_value) for pair in attributes
            )
            key = tuple(text[name] for name in names), labels
            values[key] = [*values.get(key, ()), *sample.values]
    return by_type


def notes_of(content: bytes) -> list[str]:
    """The profile's lines on where its figures come from."""
    request = ExportProfilesServiceRequest.FromString(content)
    values = request.dictionary.attribute_table[1].value.array_value.values
    return [value.string_value for value in values]
