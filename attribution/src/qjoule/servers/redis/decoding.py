# SPDX-License-Identifier: Apache-2.0
"""Decodes Redis' data."""

from qjoule.servers.decoding_types import Decoding
from qjoule.servers.redis.dialect import LANGUAGE
from qjoule.servers.redis.startup import connection_name
from qjoule.servers.registry import dialect

DECODING = Decoding(
    languages={dialect("redis"): LANGUAGE},
    application=connection_name,
    serving_threads=("redis-server", "io_thd_"),  # the main thread, and its io-threads
)
