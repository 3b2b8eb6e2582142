# SPDX-License-Identifier: Apache-2.0
"""The registry and the servers' decoders agree."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from qjoule.servers import decoding, registry
from qjoule.servers.decoding_types import Decoding

FOLDERS = Path(decoding.__file__).parent
WITH_DECODING = sorted(path.parent.name for path in FOLDERS.glob("*/decoding.py"))


def _decoding(server: str) -> Decoding:
    found = import_module(f"qjoule.servers.{server}.decoding").DECODING
    assert isinstance(found, Decoding)
    return found


@pytest.mark.parametrize("server", list(registry.servers()))
def test_each_dialect_of_the_registry_has_one_decoder(server: str) -> None:
    table = registry.servers()[server]
    if table.of or not table.dialects:
        return
    found = _decoding(server)
    numbers = [*found.languages, *found.tag_readers, *found.told_ids]
    assert sorted(numbers) == sorted(table.dialects.values())


def test_each_decoder_is_a_server_of_the_registry() -> None:
    assert set(WITH_DECODING) <= set(registry.servers())


def test_all_are_looked_up_by_number() -> None:
    known = {*decoding.LANGUAGES, *decoding.TAG_READERS, *decoding.TOLD_IDS}
    assert known == set(registry.dialects().values())
    for server in WITH_DECODING:
        if not registry.servers()[server].of:
            assert decoding.decoding_of(registry.kind_of(server)) is _decoding(server)


def test_a_kind_that_is_not_known_has_nothing() -> None:
    assert decoding.decoding_of(29) == Decoding()
    assert decoding.titled([(1, 29), (2, registry.kind_of("postgres"))]).keys() == {2}


def test_references_of_all_servers_are_one() -> None:
    references = decoding.AllReferences()
    cql, batch = registry.dialect("cql"), registry.dialect("cql-batch")
    references.learn(7, cql, "select ?")
    text = (7).to_bytes(8, "little")
    assert not references.waits(text, batch)
    assert references.statement(text, batch) == (b"BEGIN BATCH; select ?; APPLY BATCH", cql)
    references.forget(7)
    assert b"not seen" in references.statement(text, batch)[0]
    assert references.statement(b"as it is", cql) == (b"as it is", cql)
