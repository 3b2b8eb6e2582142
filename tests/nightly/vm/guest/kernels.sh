# Every attach mode of this kernel: a server that starts while it is recorded, and then the live view of it.
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

stop_server
[ -n "$SOCKET" ] || exit 0

# Reads of sockets, of each family of addresses.
ifconfig lo 127.0.0.1 up
NETWORKING='--bind-address=127.0.0.1,::1 --port=3306'
start_server
start socket --mode record --energy none $(plan "$SOCKET")
ask </share/statements >/dev/null
echo "$OVER_TCP" | while read -r marker address times; do
	for _ in $(seq "$times"); do echo "select 1 as $marker;"; done |
		ask --protocol=tcp --host="$address" >/dev/null
done
stop socket

# Probes, and reads that end what they begin.
start ended --mode record --energy none $(plan "$ENDED")
ask </share/statements >/dev/null
stop ended
stop_server

# Its writes, too.
SERVER=/tmp/server/redis-server
start redis --mode record --energy none $(plan "$REDIS")
export LD_LIBRARY_PATH=/tmp/server/lib
$SERVER --save '' --dir /tmp >/share/out/redis.log &
redis=$!
until /tmp/server/redis-cli ping >/dev/null 2>&1; do sleep 0.2; done
for _ in $(seq "$GETS"); do echo 'get key'; done | /tmp/server/redis-cli >/dev/null
kill $redis
wait $redis || true
stop redis
