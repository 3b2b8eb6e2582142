# SPDX-License-Identifier: Apache-2.0
"""Read-only sessions of PostgreSQL."""

from __future__ import annotations

from contextlib import suppress

from qjoule.api import QjouleError
from qjoule_studies.reading import only
from qjoule_studies.workload import Target

DIALECT = "postgres"
_NAMES = """
abs acos age any_value area array_agg array_append array_cat array_dims array_length array_lower
array_ndims array_position array_positions array_prepend array_remove array_replace array_to_json
array_to_string array_upper ascii asin atan atan2 avg bit_and bit_length bit_or bit_xor bool_and
bool_or box btrim cardinality cbrt ceil ceiling center char_length character_length chr circle
clock_timestamp coalesce col_description concat concat_ws convert_from convert_to corr cos cosh
cot count covar_pop covar_samp cume_dist current_database current_schema current_setting date_bin
date_part date_trunc decode degrees dense_rank diameter div encode every exp extract factorial
family first_value floor format format_type gcd generate_series generate_subscripts greatest
grouping height host hostmask initcap int4range int8range isempty isfinite json_agg
json_array_elements json_array_elements_text json_array_length json_build_array json_build_object
json_each json_each_text json_extract_path json_extract_path_text json_object json_object_agg
json_object_keys json_populate_record json_strip_nulls json_typeof jsonb_agg jsonb_array_elements
jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each
jsonb_each_text jsonb_extract_path jsonb_extract_path_text jsonb_object jsonb_object_agg
jsonb_object_keys jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array
jsonb_path_query_first jsonb_pretty jsonb_strip_nulls jsonb_typeof justify_days justify_hours
justify_interval lag last_value lcm lead least left length ln localtime localtimestamp log log10
lower lpad ltrim make_date make_interval make_time make_timestamp make_timestamptz masklen max md5
min mod mode netmask network now nth_value ntile nullif num_nonnulls num_nulls numrange
octet_length overlay percent_rank percentile_cont percentile_disc pg_typeof phraseto_tsquery pi
plainto_tsquery point polygon position power quote_ident quote_literal quote_nullable radians
random range_agg rank regexp_count regexp_instr regexp_like regexp_match regexp_matches
regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr repeat replace reverse
right round row_number row_to_json rpad rtrim scale sha256 sign sin sinh split_part sqrt
starts_with statement_timestamp stddev stddev_pop stddev_samp string_agg string_to_array
string_to_table strpos substr substring sum tan tanh text timeofday timezone to_char to_date
to_hex to_json to_jsonb to_number to_timestamp to_tsquery to_tsvector transaction_timestamp
translate trim trim_array trim_scale trunc ts_headline ts_rank ts_rank_cd tsrange tstzrange unnest
upper var_pop var_samp variance version websearch_to_tsquery width width_bucket
"""
FUNCTIONS = frozenset(_NAMES.split())


class ReadOnly:
    def __init__(self, target: Target, statement_s: float) -> None:
        import psycopg  # noqa: PLC0415 (not every server needs it)

        from qjoule_studies.servers.postgres import connect_target  # noqa: PLC0415

        self._failed = (psycopg.Error,)
        try:
            self._connection = connect_target(target, target.database)
            self._connection.execute(f"SET statement_timeout = {round(statement_s * 1000)}")
            self._connection.execute("SET default_transaction_read_only = on")
        except psycopg.Error as error:
            raise QjouleError(f"the server refuses a read-only session: {error}") from error

    def execute(self, sql: str) -> bool:
        """In autocommit every statement is a transaction of its own, which is read-only."""
        try:
            cursor = self._connection.execute(sql.encode())
            cursor.fetchall()
        except self._failed:
            return False
        return True

    def count_statements(self) -> int:
        row = self._connection.execute(
            "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database"
        ).fetchone()
        return int(only(row))

    def close(self) -> None:
        with suppress(*self._failed):
            self._connection.close()
