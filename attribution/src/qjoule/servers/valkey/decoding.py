# SPDX-License-Identifier: Apache-2.0
"""What Valkey's data means, beside what it shares with the server that it is like."""

from qjoule.servers.decoding_types import Decoding

DECODING = Decoding(serving_threads=("valkey-server", "io_thd_"))
