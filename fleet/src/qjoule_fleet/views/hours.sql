-- Sums by hour and series. Errors of one series in one hour are of one host, so they add up.
select
  date_trunc('hour', minute) as hour, kind, server, database, name, fingerprint,
  grade, policy, host, host_id,
  sum(seconds) as seconds, sum(calls) as calls, sum(cpu_ns) as cpu_ns,
  sum(energy_nj) as energy_nj,
  sum(random_nj2) as random_nj2, sum(model_nj) as model_nj, sum(scaled_nj) as scaled_nj,
  sum(total_nj) as total_nj, sum(loss_nj) as loss_nj, sum(unnamed_nj) as unnamed_nj,
  sum(down_nj) as down_nj, sum(up_nj) as up_nj,
  sum(latency_ns) as latency_ns,
  sum(lost_records) as lost_records, sum(lost_cpu_ns) as lost_cpu_ns,
  sum(waits_latency_ns) as waits_latency_ns,
  sum(wait_run_queue_ns) as wait_run_queue_ns,
  sum(wait_lock_ns) as wait_lock_ns,
  sum(wait_io_ns) as wait_io_ns,
  sum(wait_network_ns) as wait_network_ns,
  sum(wait_sleep_ns) as wait_sleep_ns,
  sum(wait_other_ns) as wait_other_ns,
  sum(helpers_ns) as helpers_ns,
  sum(helpers_wait_run_queue_ns) as helpers_wait_run_queue_ns,
  sum(helpers_wait_lock_ns) as helpers_wait_lock_ns,
  sum(helpers_wait_io_ns) as helpers_wait_io_ns,
  sum(helpers_wait_network_ns) as helpers_wait_network_ns,
  sum(helpers_wait_sleep_ns) as helpers_wait_sleep_ns,
  sum(helpers_wait_other_ns) as helpers_wait_other_ns
from spans
group by
  date_trunc('hour', minute), kind, server, database, name, fingerprint, grade, policy, host,
  host_id
