# SPDX-License-Identifier: Apache-2.0
# The packaged service under systemd, as docs/install.md has it started, beside a Redis of another user.
out=/share/out
page() { python3.11 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' http://127.0.0.1:9779/metrics; }
main_pid() { systemctl show -P MainPID qjoule-agent; }
# until_page PATTERN NAME: a page that has such a line; it is left as $out/NAME.
until_page() {
	tries=0
	until page >"$out/$2" 2>/tmp/why && grep -qE "$1" "$out/$2"; do
		tries=$((tries + 1))
		[ $tries -lt 400 ] || { cat /tmp/why; echo "no line '$1'"; exit 1; }
		sleep 1
	done
}
# until_calls NUMBER NAME: a page with so many calls, with a series of their own or in `other`.
until_calls() {
	until_page '^qjoule_windows_total' "$2"
	tries=0
	until python3.11 - "$1" "$out/$2" <<-END; do
		import sys
		calls = [line.split()[-1] for line in open(sys.argv[2]) if line.startswith("qjoule_query_calls_total{")]
		sys.exit(sum(map(float, calls)) < float(sys.argv[1]))
	END
		tries=$((tries + 1))
		[ $tries -lt 100 ] || { grep ^qjoule_query_calls_total "$out/$2"; echo "not $1 calls"; exit 1; }
		sleep 1
		page >"$out/$2"
	done
}
finish() {
	journalctl -o short-monotonic --no-pager -u qjoule-agent >"$out/journal" 2>&1
	systemctl status --no-pager -n 0 qjoule-agent >"$out/status_at_end" 2>&1 || true
}
trap finish EXIT

systemd-run --quiet --unit=shop -p User=redis -p Type=notify redis-server --port 6379 --save '' --supervised systemd
printf '[tracing]\ninterval_s = 2.0\n' >>/etc/qjoule/agent.toml
# An emulated machine is slow: a start takes two minutes of its CPU time.
mkdir -p /etc/systemd/system/qjoule-agent.service.d
printf '[Service]\nTimeoutStartSec=900\nWatchdogSec=150\n' >/etc/systemd/system/qjoule-agent.service.d/slow.conf
systemctl is-enabled qjoule-agent >"$out/enabled_before" || true
systemctl enable --now qjoule-agent
systemctl show -P SubState -P StatusText -P NRestarts qjoule-agent >"$out/ready"
systemd-analyze security --no-pager qjoule-agent >"$out/security"

redis-benchmark -q -n "$CALLS" -c 2 -t set,get >"$out/benchmark"
# redis-benchmark also asks for two settings, each time.
until_calls $((2 * CALLS + 2)) counted
for status in $(sed 's|.*|/proc/&/status|' /sys/fs/cgroup/system.slice/qjoule-agent.service/cgroup.procs); do
	grep -E '^(Name|Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' "$status" | tr -s '\t\n' '  '
	echo
done >"$out/processes"
id -u qjoule >"$out/uid"

# Another configuration without a pause.
sed -i 's/^\[store\]/[metrics]\nshapes = 7\n&/' /etc/qjoule/agent.toml
systemctl reload qjoule-agent
before=$(main_pid)

# The server restarts: it is followed.
systemctl stop shop
systemd-run --quiet --unit=shop -p User=redis -p Type=notify redis-server --port 6379 --save '' --supervised systemd
sleep 8
redis-benchmark -q -n "$CALLS" -c 2 -t lpush >>"$out/benchmark"
until_calls $((3 * CALLS + 4)) followed
[ "$before" = "$(main_pid)" ] || { echo "another main process after the reload"; exit 1; }

# An upgrade, by what dpkg runs once the new files are there: unpacking them takes minutes here.
/var/lib/dpkg/info/qjoule.postinst configure 0.0.1
systemctl is-active qjoule-agent >"$out/upgraded_state"
until_calls $((3 * CALLS + 4)) upgraded

# An engine that hangs is noticed, and the service starts again.
engine=$(tr ' ' '\n' <"/proc/$(main_pid)/task/$(main_pid)/children" | head -n 1)
kill -STOP "$engine"
tries=0
until [ "$(systemctl show -P NRestarts qjoule-agent)" = 1 ] && [ "$(systemctl is-active qjoule-agent)" = active ]; do
	tries=$((tries + 1))
	[ $tries -lt 400 ] || { echo "the service was not started again"; exit 1; }
	sleep 1
done
until_page '^qjoule_windows_total' again

dpkg --remove qjoule >"$out/dpkg" 2>&1
systemctl is-active qjoule-agent >"$out/removed" || true
ls -A /sys/fs/cgroup/system.slice/qjoule-agent.service >"$out/left" 2>/dev/null || true
find /var/lib/qjoule -printf '%M %u %p\n' >"$out/store"
