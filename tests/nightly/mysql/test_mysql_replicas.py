# SPDX-License-Identifier: Apache-2.0
"""A MySQL connection from which a replica reads."""

from __future__ import annotations

import struct
import time
from contextlib import closing
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing.mysql_client import mysql_client
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

WAIT_S = 60


def _set_up(server: DatabaseServer) -> None:
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        cursor.execute("drop database if exists m_copied")
        cursor.execute("create database m_copied")
        cursor.execute("create table m_copied.t (a bigint)")


@pytest.mark.parametrize("rung", ["socket", "symbol"])
def test_a_replicas_thread_is_background(
    mysql80: DatabaseServer, tmp_path: Path, rung: str
) -> None:
    _set_up(mysql80)
    with recording(tmp_path / "t", "--pid", str(mysql80.pid), "--rung", rung):
        _follow_binlog(mysql80)
    run = Run(tmp_path / "t")
    owners = run.trace.pandas("owners")
    segments = run.trace.pandas("segments")
    (dump,) = owners[owners["role"].isin(["binlog-dump"])].itertuples()
    mine = segments[segments["owner"] == dump.owner]
    assert (mine["t1_ns"] - mine["t0_ns"]).sum() > 0
    assert dump.kind == "server"
    served = run.queries[run.queries["pid"] == dump.pid]
    last_ns = mine["t1_ns"].max()
    assert not ((served["begin_ns"] < last_ns) & (served["end_ns"] > dump.t0_ns)).any()
    assert run.loss == {}


def _follow_binlog(server: DatabaseServer) -> None:
    with mysql_client(server.socket) as replica, mysql_client(server.socket) as writer:
        replica.query(b"set @master_binlog_checksum = 'CRC32'")
        replica.send(wire.COM_BINLOG_DUMP, struct.pack("<IHI", 4, 0, 99))
        for number in range(50):
            writer.query(b"insert into m_copied.t (a) values (%d)" % number)
        events = 0
        while events < 100:  # some for each transaction
            assert replica.next_packet()[0] == 0
            events += 1
    # The server notices that the replica has gone when it next sends to it.
    deadline = time.monotonic() + WAIT_S
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        while cursor.execute(
            "select 1 from information_schema.processlist where command = 'Binlog Dump'"
        ):
            assert time.monotonic() < deadline
            cursor.execute("insert into m_copied.t (a) values (0)")
            time.sleep(0.05)
