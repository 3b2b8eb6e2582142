-- What was measured, by domain (`package`, `dram`), and what was lost. A host's queries and owners
-- add up to its main domain, to the nJ. Each domain's row repeats what was lost.
select minute, seconds, name as domain, grade, policy, host, host_id, energy_nj, lost_records,
  lost_cpu_ns
from spans
where kind = 'node'
