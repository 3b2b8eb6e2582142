"""What Cassandra's data means."""

from qjoule.contract import Dialect
from qjoule.servers.cassandra.dialect import LANGUAGE, PREPARED, Batches
from qjoule.servers.cassandra.tags import tags_in_payload
from qjoule.servers.decoding_types import Decoding

DECODING = Decoding(
    languages={Dialect.CQL: LANGUAGE, Dialect.CQL_ID: PREPARED, Dialect.CQL_BATCH: LANGUAGE},
    tag_readers={Dialect.PAYLOAD: tags_in_payload},
    references=Batches,
    # org.apache.cassandra.concurrent.Stage. Workers are shared, and called by the stage that they
    # work for at the time.
    serving_threads=(
        *("Native-Transpor", "ReadStage", "MutationStage", "CounterMutation", "ViewMutation"),
        *("RequestRespons", "SharedPool-Work", "epollEventLoopG", "nioEventLoopGro"),
    ),
)
