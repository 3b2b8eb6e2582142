# SPDX-License-Identifier: Apache-2.0
"""Decodes VoltDB's data."""

from qjoule.servers.decoding_types import Decoding
from qjoule.servers.registry import dialect
from qjoule.servers.voltdb.dialect import LANGUAGE

DECODING = Decoding(languages={dialect("voltdb"): LANGUAGE})
