# SPDX-License-Identifier: Apache-2.0
"""Decodes MySQL's and MariaDB's data."""

from qjoule.servers.decoding_types import (
    CAUSED_BY_READS,
    CAUSED_BY_WRITES,
    SERVES_QUERIES,
    Decoding,
)
from qjoule.servers.mysql.dialect import LANGUAGE
from qjoule.servers.mysql.startup import change_user, login, program_name
from qjoule.servers.mysql.tags import tags_in_attributes
from qjoule.servers.mysql.unseen import NAMES, TEXTS
from qjoule.servers.registry import dialect

DECODING = Decoding(
    languages={dialect("mysql"): LANGUAGE},
    tag_readers={dialect("attributes"): tags_in_attributes},
    startup=login,
    change=change_user,
    application=program_name,
    texts_by_id=TEXTS,
    names_before=NAMES,
    causes={
        "ib_srv_purge": CAUSED_BY_WRITES,  # removes row versions that UPDATE and DELETE left ...
        "ib_srv_wkr": CAUSED_BY_WRITES,  # ... with these
        "ib_pg_flush": CAUSED_BY_WRITES,  # MySQL's page cleaners
        "page_cleaner": CAUSED_BY_WRITES,  # MariaDB's
        "checkpoint_bg": CAUSED_BY_WRITES,
        "ib_io_wr": CAUSED_BY_WRITES,
        "ib_log_": CAUSED_BY_WRITES,
        "ib_io_rd": CAUSED_BY_READS,  # read-ahead
        "ib_tpool_worker": SERVES_QUERIES,  # MariaDB: reads, writes and purge by turns
    },
)
