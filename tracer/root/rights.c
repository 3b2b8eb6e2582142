// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "root.h"

/*
 * capset(2): only these capabilities, of the first 32, can be used or passed on; others are not
 * ambient any more either.
 */
static int keep_capabilities(uint32_t mask)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{mask, mask, mask}};

	return syscall(SYS_capset, &header, sets);
}

int rights_give_up(uid_t uid, gid_t gid)
{
	int next = 0;

	/* The bounding set first: that needs CAP_SETPCAP. Numbers beyond the kernel's last fail. */
	while (next == CAP_SETPCAP || !prctl(PR_CAPBSET_DROP, next, 0, 0, 0))
		next++;
	if (errno != EINVAL ||
	    prctl(PR_SET_SECUREBITS,
		  SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED, 0, 0, 0) ||
	    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(gid, gid, gid) ||
	    setresuid(uid, uid, uid) || keep_capabilities(1u << CAP_SETPCAP) ||
	    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SETPCAP, 0, 0) ||
	    prctl(PR_CAPBSET_DROP, CAP_SETPCAP, 0, 0, 0) || prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	return 0;
}

int rights_of_files(uid_t uid, gid_t gid)
{
	if (setgroups(0, NULL))
		return -errno;
	setfsgid(gid);
	setfsuid(uid);
	/* They report no failure: called with an impossible id, they return the current one. */
	if ((gid_t)setfsgid(-1) != gid || (uid_t)setfsuid(-1) != uid)
		return -EPERM;
	return keep_capabilities(0) ? -errno : 0;
}
