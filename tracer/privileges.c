// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Hides this process from others of its user, and forbids system calls that it does not need. */
#include "system.h"

#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int pump_calls[] = {
    /* read counters, write the stream, sleep */
    SCMP_SYS(read),
    SCMP_SYS(pread64),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(sync_file_range),
    SCMP_SYS(fadvise64),
    /* look for new energy counters; go to the start of a ring's file */
    SCMP_SYS(getdents64),
    SCMP_SYS(lseek),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(restart_syscall),
    /* memory and signals of the C library */
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    /* detach and exit */
    SCMP_SYS(close),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

static const int ring_call = SCMP_SYS(ftruncate); /* to empty the ring's files */

static int confine(bool call_bpf, bool ring)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int err = 0;

	if (!filter)
		return -ENOMEM;
	for (unsigned i = 0; !err && i < sizeof(pump_calls) / sizeof(pump_calls[0]); i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, pump_calls[i], 0);
	if (!err && ring)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, ring_call, 0);
	if (!err && call_bpf)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(bpf), 0);
	if (!err)
		err = seccomp_load(filter);
	seccomp_release(filter);
	return err;
}

int privileges_hide(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -1;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_SETPCAP, 0, 0) != 1)
		return 0; /* not started by the root part */
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_capset, &header, none);
}

int privileges_confine(bool call_bpf, bool ring)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
#if defined(__SANITIZE_ADDRESS__)
	return 0; /* the sanitizers make system calls that the pump does not */
#endif
	return confine(call_bpf, ring);
}
