"""What Redis' data means."""

from qjoule.contract import Dialect
from qjoule.servers.decoding_types import Decoding
from qjoule.servers.redis.dialect import LANGUAGE
from qjoule.servers.redis.startup import connection_name

DECODING = Decoding(
    languages={Dialect.REDIS: LANGUAGE},
    application=connection_name,
    serving_threads=("redis-server", "io_thd_"),  # the main thread, and its io-threads
)
