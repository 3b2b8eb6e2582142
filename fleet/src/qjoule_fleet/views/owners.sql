-- The rows of `spans` of everything else that ran: background work, other processes, idle, ...
select minute, seconds, kind, server, name, grade, policy, host, host_id, cpu_ns, energy_nj
from spans
where kind not in ('queries', 'node')
