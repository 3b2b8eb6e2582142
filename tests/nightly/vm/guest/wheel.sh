# The wheel for aarch64, installed in a root tree with Python and Redis: it traces that Redis.
ifconfig lo up
tree=/root
for place in proc sys dev; do
	mount --bind "/$place" "$tree/$place"
done
mount -t tmpfs tmpfs "$tree/tmp"
chmod 1777 "$tree/tmp"
mount -t tracefs tracefs "$tree/sys/kernel/tracing" || true
inside() {
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root chroot "$tree" "$@"
}

inside python3 -m qjoule --version >/share/out/version
inside redis-server --port 6379 --save '' --daemonize yes --logfile /tmp/redis.log --pidfile /tmp/redis.pid >/dev/null
until inside redis-cli ping >/tmp/alive 2>&1; do sleep 0.2; done
redis=$(cat "$tree/tmp/redis.pid")

inside python3 -m qjoule doctor --json >/share/out/doctor.json || true
inside redis-cli config resetstat >/dev/null
inside python3 -m qjoule record -o /tmp/trace --pid "$redis" --energy none -- \
	redis-benchmark -q -n "$CALLS" -c 2 -t set,get >/share/out/benchmark 2>/share/out/record.err
inside redis-cli info commandstats >/share/out/commandstats
inside python3 -m qjoule attribute /tmp/trace --format json >/share/out/rows.json
