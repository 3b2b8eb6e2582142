# SPDX-License-Identifier: Apache-2.0
"""A server that keeps what is posted to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """Keeps requests, and answers as told: codes in turn, the last one for ever."""

    codes: list[int] = field(default_factory=lambda: [200])
    headers: dict[str, str] = field(default_factory=dict)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    page: bytes = b""  #: what it answers to GET


@contextmanager
def receiver(*codes: int, **headers: str) -> Iterator[Receiver]:
    its = Receiver(list(codes) or [200], headers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            its.got.append(({name.lower(): of for name, of in self.headers.items()}, content))
            self.send_response(its.codes.pop(0) if len(its.codes) > 1 else its.codes[0])
            for name, value in its.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(its.page)

        def log_message(self, *_words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    its.url = f"http://127.0.0.1:{server.server_address[1]}/api"
    try:
        yield its
    finally:
        server.shutdown()
        server.server_close()
