# Every rung of this kernel: a server that starts while it is recorded, and then the live view of it.
# Probes and tracepoints do not need tracefs.
umount /sys/kernel/tracing
uname -r >/share/out/release
place_server
start recorded --mode record --energy none $(plan "$SYMBOL")
start_server
ask </share/statements >/dev/null
ask -e "show global status like 'Com_select'" >/share/out/selects
stop recorded

start live --mode live --energy none $(plan "$SYMBOL")
ask </share/statements >/dev/null
sleep 1
stop live

if [ -n "$SOCKET" ]; then
	start socket --mode record --energy none $(plan "$SOCKET")
	ask </share/statements >/dev/null
	stop socket
fi
stop_server
