# SPDX-License-Identifier: Apache-2.0
"""Decodes Valkey's data, as far as it differs from Redis."""

from qjoule.servers.decoding_types import Decoding

DECODING = Decoding(serving_threads=("valkey-server", "io_thd_"))
