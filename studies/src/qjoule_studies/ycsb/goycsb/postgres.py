# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of PostgreSQL."""

import psycopg

from qjoule_studies.servers.postgres import connect_target
from qjoule_studies.ycsb.goycsb.driver import sql_driver

DRIVER = sql_driver("pg", connect_target, psycopg.Error, "VACUUM ANALYZE")
