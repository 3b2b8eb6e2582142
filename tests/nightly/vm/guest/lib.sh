# For the scripts that run in a virtual machine. What they leave in /share/out the host can read.

# start NAME OPTION...: a tracer and its root part, and waits until it is attached: its stream
# begins when it is. SERVER: the executable that the options have probes of.
start() {
	name=$1
	shift
	qjoule-root /bin/traced -I /bin/traced record "${SERVER:--}" "$@" >"/tmp/$name.stream" 2>"/share/out/$name.err" &
	echo $! >"/tmp/$name.pid"
	until [ -s "/tmp/$name.stream" ]; do
		kill -0 "$(cat "/tmp/$name.pid")" || {
			echo "$name: the tracer did not attach"
			exit 1
		}
		sleep 0.1
	done
}

# stop NAME: ends it well and hands out its stream.
stop() {
	kill -TERM "$(cat "/tmp/$1.pid")"
	wait "$(cat "/tmp/$1.pid")"
	mv "/tmp/$1.stream" /share/out
}

# ---- a MariaDB, copied to /share/server, and the tracer's plan of it

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
