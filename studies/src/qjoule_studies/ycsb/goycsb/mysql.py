# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of MySQL and MariaDB."""

import pymysql

from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.ycsb.goycsb.driver import sql_driver

DRIVER = sql_driver("mysql", connect_target, pymysql.Error, "ANALYZE TABLE")
