# A server that starts while it is traced, by probes on its functions: this kernel is too old for
# the tracepoints of the socket rung.
insmod /modules/fake_rapl.ko $RAPL
place_server
start queries --mode record $(plan "$PLAN")
start_server
ask </share/statements >/dev/null
ask -e "show global status like 'Com_select'" >/share/out/selects
stop_server
stop queries
