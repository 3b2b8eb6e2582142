# Two packages of one core with two threads each, with energy counters of known power.
insmod /modules/fake_rapl.ko $RAPL
stat -c '%a %u %n' /sys/class/powercap/intel-rapl:*/energy_uj >/share/out/permissions

start recorded --mode record
start live --mode live --energy none
# The root part's child, which is the tracer by now.
child=$(grep -l "^PPid:.$(cat /tmp/recorded.pid)\$" /proc/[0-9]*/status | head -n 1)
grep '^[UG]id' "$child" >/share/out/ids

# Alone on its core at first, then with its sibling, with the other package, and alone again.
counted_load 0 2000 >/share/out/first.json &
first=$!
sleep 0.5
counted_load 1 600 >/share/out/sibling.json
counted_load 2 300 >/share/out/other.json
wait $first
stop live

# Only with a measured total does the live view sum idle tails and wake-ups.
start effects --mode live
# Short runs and short sleeps, on two threads of one core and on the other package.
naps() {
	n=0
	while [ $n -lt 150 ]; do
		usleep $1
		n=$((n + 1))
	done
}
naps 300 &
taskset -p 1 $! >/dev/null
naps 700 &
taskset -p 2 $! >/dev/null
naps 500 &
taskset -p 8 $! >/dev/null
wait $!
sleep "$REST_S"
stop effects
stop recorded
