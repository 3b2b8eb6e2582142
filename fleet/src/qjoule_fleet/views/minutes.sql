-- A row for each minute and series, as the agents wrote them.
select
  minute, seconds, kind, server, coalesce(database, '') as database, name, fingerprint,
  coalesce(grade, '') as grade, coalesce(policy, '') as policy, host, host_id,
  calls, cpu_ns, energy_nj,
  random_nj2, model_nj, scaled_nj, total_nj, loss_nj, unnamed_nj, down_nj, up_nj,
  latency_ns, latency, lost_records, lost_cpu_ns,
  waits_latency_ns, wait_run_queue_ns, wait_lock_ns, wait_io_ns, wait_network_ns, wait_sleep_ns,
  wait_other_ns, helpers_ns, helpers_wait_run_queue_ns, helpers_wait_lock_ns, helpers_wait_io_ns,
  helpers_wait_network_ns, helpers_wait_sleep_ns, helpers_wait_other_ns
from rollup_parts
