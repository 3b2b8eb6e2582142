# SPDX-License-Identifier: Apache-2.0
"""Decodes MongoDB's data."""

from qjoule.servers.decoding_types import Decoding
from qjoule.servers.mongodb.dialect import LANGUAGE
from qjoule.servers.mongodb.dialect_cursors import Cursors
from qjoule.servers.mongodb.startup import hello
from qjoule.servers.registry import dialect

DECODING = Decoding(languages={dialect("mongodb"): LANGUAGE}, references=Cursors, startup=hello)
