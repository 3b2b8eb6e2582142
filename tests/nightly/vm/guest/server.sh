# A MariaDB in a virtual machine, copied to /share/server, and the tracer's plan of it.

# The server's files, which must lie where they have the device and inode of the plan.
place_server() {
	SERVER=/tmp/server/mariadbd
	cp -r /share/server /tmp/server
	mkdir -p /tmp/data /etc
	echo 'root:x:0:0::/:/bin/sh' >/etc/passwd
}

# plan OPTIONS: with the identity that the executable has here.
plan() {
	echo "$1" | sed "s/DEVICE:INODE/$(stat -c %d:%i "$SERVER")/"
}

ask() {
	LD_LIBRARY_PATH=/tmp/server/lib /tmp/server/mariadb --no-defaults --socket=/tmp/socket --skip-column-names "$@"
}

start_server() {
	LD_LIBRARY_PATH=/tmp/server/lib $SERVER --no-defaults --user=root --datadir=/tmp/data --socket=/tmp/socket \
		${NETWORKING:---skip-networking} --skip-grant-tables --skip-innodb --default-storage-engine=Aria \
		--lc-messages-dir=/tmp/server/share --character-sets-dir=/tmp/server/share/charsets \
		>/share/out/mariadbd.err 2>&1 &
	server=$!
	until ask -e 'select 1 as m_alive' >/dev/null 2>/tmp/refused; do
		kill -0 $server || exit 1
		sleep 0.2
	done
}

stop_server() {
	kill $server
	wait $server
}
