# SPDX-License-Identifier: Apache-2.0
"""Decodes FerretDB's data, as far as it differs from MongoDB."""

from qjoule.servers.decoding_types import Decoding

DECODING = Decoding(serving_threads=("ferretdb",))  # all its threads have the name of the process
