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

sleep "$REST_S"
stop recorded
