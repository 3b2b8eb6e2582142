# SPDX-License-Identifier: Apache-2.0
"""Decodes memcached's data."""

from qjoule.servers.decoding_types import Decoding
from qjoule.servers.memcached.dialect import LANGUAGE
from qjoule.servers.registry import dialect

DECODING = Decoding(languages={dialect("memcached"): LANGUAGE}, serving_threads=("mc-worker",))
