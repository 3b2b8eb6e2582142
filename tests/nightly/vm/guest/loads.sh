# Loads and attaches the programs of each server and attach mode, one plan per line of /share/plans: a name, and
# options. What a kernel refuses is left in NAME.err.
SERVER=/tmp/program
cp /bin/busybox $SERVER
uname -r >/share/out/release
# What says which programs this kernel gets.
mount -t debugfs debugfs /sys/kernel/debug
for file in /sys/kernel/btf/vmlinux /proc/sys/kernel/version /proc/sys/kernel/unprivileged_bpf_disabled \
	/sys/kernel/debug/sched/preempt; do
	[ ! -e $file ] || { mkdir -p "/share/out/facts${file%/*}" && cat $file >"/share/out/facts$file"; }
done
umount /sys/kernel/debug
identity=$(stat -c %d:%i $SERVER)
while read -r name options; do
	(start "$name" --energy none --tags --stacks 99 --verbose $(echo "$options" | sed "s/DEVICE:INODE/$identity/")) </dev/null || continue
	kill -TERM "$(cat "/tmp/$name.pid")"
	while kill -0 "$(cat "/tmp/$name.pid")" 2>/dev/null; do sleep 0.1; done
	tail -c 64 "/tmp/$name.stream" >"/share/out/$name.end"
done </share/plans
