# SPDX-License-Identifier: Apache-2.0
"""Decodes MySQL's and MariaDB's data."""

from qjoule.servers.decoding_types import Decoding
from qjoule.servers.mysql.dialect import LANGUAGE
from qjoule.servers.mysql.startup import change_user, login
from qjoule.servers.mysql.tags import tags_in_attributes
from qjoule.servers.registry import dialect

DECODING = Decoding(
    languages={dialect("mysql"): LANGUAGE},
    tag_readers={dialect("attributes"): tags_in_attributes},
    startup=login,
    change=change_user,
)
