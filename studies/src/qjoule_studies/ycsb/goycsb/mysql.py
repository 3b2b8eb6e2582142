# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of MySQL and MariaDB."""

import pymysql

from qjoule_studies.connect.mysql import connect_mysql
from qjoule_studies.ycsb.goycsb.driver import sql_driver

DRIVER = sql_driver("mysql", connect_mysql, pymysql.Error, "ANALYZE TABLE")
