# Two cores of one package, recorded on a kernel without counters of single cores, with them, and with wrong ones.
# Each has a load, both always at the same time.
insmod /modules/fake_rapl.ko $RAPL
ln -s /bin/counted_load /tmp/hungry
ln -s /bin/counted_load /tmp/frugal

record_both() {
	start "$1" --mode record
	for ms in $BURSTS_MS; do
		/tmp/hungry 0 "$ms" >/dev/null &
		hungry=$!
		/tmp/frugal 1 "$ms" >/dev/null
		wait $hungry
		sleep 0.4
	done
	stop "$1"
}

record_both without
insmod /modules/fake_power_core.ko $CORES
record_both with
rmmod fake_power_core
insmod /modules/fake_power_core.ko $WRONG_CORES
record_both wrong
