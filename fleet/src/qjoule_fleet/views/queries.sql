-- The rows of `spans` that belong to statements.
select
  minute, seconds, server, database, fingerprint, grade, policy, host, host_id,
  calls, cpu_ns, energy_nj,
  random_nj2, model_nj, scaled_nj, total_nj, loss_nj, unnamed_nj, down_nj, up_nj,
  latency_ns, latency,
  waits_latency_ns, wait_run_queue_ns, wait_lock_ns, wait_io_ns, wait_network_ns, wait_sleep_ns,
  wait_other_ns, helpers_ns, helpers_wait_run_queue_ns, helpers_wait_lock_ns, helpers_wait_io_ns,
  helpers_wait_network_ns, helpers_wait_sleep_ns, helpers_wait_other_ns
from spans
where kind = 'queries'
