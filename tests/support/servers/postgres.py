# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL from the distribution, with pg_stat_statements loaded."""

from __future__ import annotations

import shutil

import psycopg

from qjoule_studies.servers.postgres import postgres_server
from servers.certificates import self_signed
from servers.process import DatabaseServer
from waiting import until

__all__ = ["offer_tls", "postgres_server"]


def offer_tls(server: DatabaseServer, connection: psycopg.Connection) -> None:
    """Turns TLS on, and asks the user m_scram for a password."""
    data = server.directory / "data"
    for made, name in zip(self_signed(data), ("server.key", "server.crt"), strict=True):
        shutil.chown(made, (data / "PG_VERSION").stat().st_uid)
        made.chmod(0o600)
        made.rename(data / name)
    rules = data / "pg_hba.conf"
    rules.write_text("host all m_scram all scram-sha-256\n" + rules.read_text())
    connection.execute("alter system set ssl = on")
    connection.execute("select pg_reload_conf()")
    until(lambda: connection.execute("show ssl").fetchone() == ("on",))
