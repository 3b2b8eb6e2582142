-- The rows of `spans` that are statements'.
select
  minute, seconds, server, database, fingerprint, grade, policy, host, host_id,
  calls, cpu_ns, energy_nj,
  random_nj2, model_nj, scaled_nj, total_nj, loss_nj, unnamed_nj, down_nj, up_nj,
  latency_ns, latency
from spans
where kind = 'queries'
