# SPDX-License-Identifier: Apache-2.0
"""Read-only sessions of MariaDB and MySQL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from qjoule.api import QjouleError
from qjoule_studies.reading import only
from qjoule_studies.workload import Target

DIALECT = "mysql"
_NAMES = """
abs acos adddate addtime any_value ascii asin atan atan2 avg bin bit_and bit_count bit_length
bit_or bit_xor cast ceil ceiling char char_length character_length charset coalesce coercibility
collation concat concat_ws connection_id conv convert convert_tz cos cot count crc32 cume_dist
curdate current_date current_time current_timestamp current_user curtime database date date_add
date_format date_sub datediff day dayname dayofmonth dayofweek dayofyear degrees dense_rank elt
exp export_set extract field find_in_set first_value floor format from_base64 from_days
from_unixtime get_format greatest group_concat grouping hex hour if ifnull inet6_aton inet6_ntoa
inet_aton inet_ntoa instr isnull json_array json_arrayagg json_contains json_contains_path
json_depth json_extract json_keys json_length json_object json_objectagg json_overlaps json_pretty
json_quote json_search json_type json_unquote json_valid json_value lag last_day last_value lcase
lead least left length ln localtime localtimestamp locate log log10 log2 lower lpad ltrim make_set
makedate maketime max md5 median microsecond mid min minute mod month monthname now nth_value
ntile nullif oct octet_length ord percent_rank period_add period_diff pi position pow power
quarter quote radians rand rank regexp_instr regexp_like regexp_replace regexp_substr repeat
replace reverse right round row_number rpad rtrim schema sec_to_time second session_user sha sha1
sha2 sign sin soundex space sqrt st_area st_asgeojson st_astext st_contains st_distance
st_distance_sphere st_geomfromtext st_intersects st_within st_x st_y std stddev stddev_pop
stddev_samp str_to_date strcmp subdate substr substring substring_index subtime sum sysdate
system_user tan time time_format time_to_sec timediff timestamp timestampadd timestampdiff
to_base64 to_days to_seconds trim ucase unhex unix_timestamp upper user utc_date utc_time
utc_timestamp uuid var_pop var_samp variance version week weekday weekofyear year yearweek
"""
FUNCTIONS = frozenset(_NAMES.split())


class ReadOnly:
    def __init__(self, target: Target, statement_s: float) -> None:
        import pymysql  # noqa: PLC0415 (not every server needs it)

        from qjoule_studies.servers.mysql import connect_target  # noqa: PLC0415

        self._failed = (pymysql.Error,)
        try:
            self._connection = connect_target(target, target.database)
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT VERSION()")
                mariadb = "mariadb" in str(only(cursor.fetchone())).lower()
                limit = (
                    f"max_statement_time = {statement_s:f}"
                    if mariadb
                    else f"max_execution_time = {round(statement_s * 1000)}"
                )
                cursor.execute(f"SET SESSION {limit}")
                # In autocommit every statement is a transaction of its own: no snapshot is held.
                cursor.execute("SET SESSION TRANSACTION READ ONLY")
        except pymysql.Error as error:
            raise QjouleError(f"the server refuses a read-only session: {error}") from error

    def execute(self, sql: str) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                cursor.fetchall()
        except self._failed:
            return False
        return True

    def count_statements(self) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            row: Any = cursor.fetchone()
        return int(row[1])

    def close(self) -> None:
        with suppress(*self._failed):
            self._connection.close()
