# A server that starts while it is traced, by probes on its functions: this kernel is too old for
# the tracepoints of the socket rung.
insmod /modules/fake_rapl.ko $RAPL
cp -r /share/server /tmp/server
mkdir -p /tmp/data /etc
echo 'root:x:0:0::/:/bin/sh' >/etc/passwd
export LD_LIBRARY_PATH=/tmp/server/lib

ask() {
	/tmp/server/mariadb --no-defaults --socket=/tmp/socket --skip-column-names "$@"
}

SERVER=/tmp/server/mariadbd
start queries --mode record $(echo "$PLAN" | sed "s/DEVICE:INODE/$(stat -c %d:%i $SERVER)/")
/tmp/server/mariadbd --no-defaults --user=root --datadir=/tmp/data --socket=/tmp/socket \
	--skip-networking --skip-grant-tables --skip-innodb --default-storage-engine=Aria \
	--lc-messages-dir=/tmp/server/share --character-sets-dir=/tmp/server/share/charsets \
	>/share/out/mariadbd.err 2>&1 &
server=$!
until ask -e 'select 1 as m_alive' >/dev/null 2>/tmp/refused; do
	kill -0 $server || exit 1
	sleep 0.2
done
ask </share/statements >/dev/null
ask -e "show global status like 'Com_select'" >/share/out/selects
kill $server
wait $server
stop queries
