# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of PostgreSQL."""

import psycopg

from qjoule_studies.connect.postgres import connect_postgres
from qjoule_studies.ycsb.goycsb.driver import sql_driver

DRIVER = sql_driver("pg", connect_postgres, psycopg.Error, "VACUUM ANALYZE")
