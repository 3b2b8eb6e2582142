# SPDX-License-Identifier: Apache-2.0
"""What FerretDB's data means, beside what it shares with the server that it is like."""

from qjoule.servers.decoding_types import Decoding

DECODING = Decoding(serving_threads=("ferretdb",))  # all its threads are called as it is
