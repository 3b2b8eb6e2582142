-- A row for each state of a server: its release (kind and version) between two times. The first
-- known state also holds for earlier times, and the last one for later times.
select
  host, host_id, server, kind, version, concat(kind, ' ', version) as release, exe, attach_mode,
  case when place = 1 then timestamp '1970-01-01 00:00:00' else begins end as begins,
  coalesce(next_begins, timestamp '9999-01-01 00:00:00') as ends
from (
  select
    host, host_id, server, kind, version, exe, attach_mode, valid_from as begins,
    row_number() over (partition by host_id, server order by valid_from, version) as place,
    lead(valid_from) over (partition by host_id, server order by valid_from, version)
      as next_begins
  from server_parts
) placed
