# SPDX-License-Identifier: Apache-2.0
"""Decodes Cassandra's data."""

from qjoule.servers.cassandra.dialect import LANGUAGE, PREPARED, Batches
from qjoule.servers.cassandra.tags import tags_in_payload
from qjoule.servers.decoding_types import Decoding
from qjoule.servers.registry import dialect
from qjoule.servers.texts_by_id import TextsById

DECODING = Decoding(
    languages={
        dialect("cql"): LANGUAGE,
        dialect("cql-id"): PREPARED,
        dialect("cql-batch"): LANGUAGE,
    },
    tag_readers={dialect("payload"): tags_in_payload},
    references=Batches,
    texts_by_id=TextsById(
        ids=dialect("cql-id"),
        statements=dialect("cql"),
        key=lambda text, _thread: text or None,
        module="qjoule.servers.cassandra.texts",
        driver="cassandra-driver",
        view="system.prepared_statements",
        refer=frozenset({dialect("cql-batch")}),
    ),
    # org.apache.cassandra.concurrent.Stage. Workers are shared; their name is that of the stage
    # they currently work for.
    serving_threads=(
        *("Native-Transpor", "ReadStage", "MutationStage", "CounterMutation", "ViewMutation"),
        *("RequestRespons", "SharedPool-Work", "epollEventLoopG", "nioEventLoopGro"),
    ),
)
