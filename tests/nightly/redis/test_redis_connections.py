# SPDX-License-Identifier: Apache-2.0
"""Encrypted connections of a Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.contract import Rung
from qjoule_studies.servers.process import DatabaseServer, free_port
from qjoule_studies.servers.redis import redis_server
from servers.databases import self_signed
from tracing.recording import Run, recording
from tracing.releases import planned

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


def test_redis_with_tls_is_not_exact_and_its_sessions_are_loss(
    redis: DatabaseServer, tmp_path: Path
) -> None:
    """Also if TLS is configured later. A server on a unix socket alone has none."""
    assert (planned(redis).choice.rung, planned(redis).choice.exact) == (Rung.SOCKET, True)
    key, certificate = self_signed(tmp_path)
    pems = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    more = ("--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")
    with redis_server(*pems, *more) as server, server.connect() as client:
        assert planned(server).choice.exact
        port = free_port()
        client.config_set("tls-port", port)
        choice = planned(server).choice
        assert not choice.exact
        assert "with TLS" in choice.why
        with recording(tmp_path / "t", "--pid", str(server.pid)):
            with server.connect(
                tcp=True, port=port, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False
            ) as secure:
                secure.get("hidden:1")
            client.get("plain:1")
        client.config_set("tls-port", 0)
        client.config_set("port", 0)
        assert planned(server).choice.exact
    run = Run(tmp_path / "t")
    assert run.loss == {"opaque_session": 1}
    counted = run.executions()
    assert (counted["GET plain:?"], counted["GET hidden:?"]) == (1, 0)
