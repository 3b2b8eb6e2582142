# SPDX-License-Identifier: Apache-2.0
"""Decodes MongoDB's data."""

from qjoule.servers.decoding_types import Decoding
from qjoule.servers.mongodb.dialect import LANGUAGE
from qjoule.servers.mongodb.dialect_cursors import Cursors
from qjoule.servers.mongodb.startup import app_name, hello, user_name
from qjoule.servers.names_before import NamesBefore
from qjoule.servers.registry import dialect

DECODING = Decoding(
    languages={dialect("mongodb"): LANGUAGE},
    references=Cursors,
    startup=hello,
    change=user_name,
    application=app_name,
    names_before=NamesBefore(
        *("qjoule.servers.mongodb.connections", "pymongo", "$currentOp"), by_name=True
    ),
)
