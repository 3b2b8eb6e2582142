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
