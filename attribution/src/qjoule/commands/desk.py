# SPDX-License-Identifier: Apache-2.0
"""The options with which `top` and `record` use an agent elsewhere."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from qjoule.errors import UsageError

if TYPE_CHECKING:
    from qjoule.remote.client import Connection
    from qjoule.snapshots import SnapshotSource

TOKEN = "QJOULE_TOKEN"
#: Options of `top` that are of use; the rest is the agent's configuration.
TOP = frozenset({"batch", "snapshots", "as_json", "as_csv", "limit"})


@dataclass(frozen=True)
class Desk:
    """An agent, and how to show who we are."""

    host: str
    token_file: Path | None
    ca: str
    certificate: str
    key: str

    def check(self, context: click.Context, of_use: frozenset[str] = TOP) -> None:
        """Raises `UsageError` for options that an agent elsewhere does not follow.

        `of_use`: those of the command that it follows, beside these.
        """
        for parameter in context.command.params:
            name = parameter.name or ""
            given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if given and name not in of_use | _OWN:
                raise UsageError(
                    f"{parameter.opts[-1]} is not for --host: the agent's configuration decides"
                )

    @contextmanager
    def source(self) -> Iterator[SnapshotSource]:
        """Raises `UsageError`."""
        from qjoule.remote.source import RemoteSource  # noqa: PLC0415 - with --host alone

        with self.connection() as (connection, name):
            yield RemoteSource(connection, name)

    @contextmanager
    def connection(self) -> Iterator[tuple[Connection, str]]:
        """To the agent, and what it is called. Raises `UsageError`."""
        from qjoule.remote.client import Connection, address_of  # noqa: PLC0415 - as above
        from qjoule.remote.tls import client_context  # noqa: PLC0415

        address = address_of(self.host)
        if not address.is_encrypted and (self.ca or self.certificate):
            raise UsageError("--ca and --cert are for https://")
        if self.key and not self.certificate:
            raise UsageError("--key needs --cert")
        token = self._token()
        if not token and not self.certificate:
            raise UsageError(f"--host needs --token-file, {TOKEN} in the environment, or --cert")
        context = None
        if address.is_encrypted:
            context = client_context(self.ca, self.certificate, self.key)
        connection = Connection(address, token, context)
        try:
            yield connection, address.name
        finally:
            connection.stop()

    def _token(self) -> str:
        from qjoule.remote.client import checked_token  # noqa: PLC0415 - as above
        from qjoule.remote.tls import read_secret  # noqa: PLC0415

        if self.token_file is not None:
            return checked_token(read_secret(self.token_file))
        text = os.environ.get(TOKEN, "")
        return checked_token(text) if text else ""


_OWN = frozenset({"host", "token_file", "ca", "certificate", "key"})


def desk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command gets `desk`, which is None without --host."""

    @functools.wraps(function)
    def wrapped(
        *,
        host: str | None,
        token_file: Path | None,
        ca: str | None,
        certificate: str | None,
        key: str | None,
        **others: Any,
    ) -> Any:
        desk = Desk(host, token_file, ca or "", certificate or "", key or "") if host else None
        if desk is None and (token_file or ca or certificate or key):
            raise UsageError("--token-file, --ca, --cert and --key are for --host")
        return function(desk=desk, **others)

    file = click.Path(path_type=Path)
    for option in (
        click.option("--key", metavar="FILE", help="With --cert: its key, if in another file."),
        click.option(
            "--cert", "certificate", metavar="FILE", help="With --host: our certificate (PEM)."
        ),
        click.option(
            "--ca", metavar="FILE", help="With --host: who signs the agent's certificate."
        ),
        click.option(
            "--token-file",
            type=file,
            metavar="FILE",
            help=f"With --host: our token; or {TOKEN} in the environment.",
        ),
        click.option(
            "--host", metavar="URL", help="Use the agent there, such as https://db1:9780."
        ),
    ):
        wrapped = option(wrapped)
    return wrapped
