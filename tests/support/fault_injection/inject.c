// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Preloaded into qjoule-root: makes the n-th call of one kind fail, as QJOULE_FAULT=KIND:N:ERRNO
 * requests. When it does, it appends a byte to the file named by QJOULE_FAULTED. That file is
 * opened before the first process without rights is forked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* True once, for the call that is to fail; sets errno. */
static bool fails(const char *kind)
{
	static int left = -1, number, faulted;
	static char wanted[16];

	if (left < 0) {
		const char *fault = getenv("QJOULE_FAULT");

		left = 0;
		if (!strcmp(program_invocation_short_name, "qjoule-root") && fault &&
		    sscanf(fault, "%15[^:]:%d:%d", wanted, &left, &number) != 3)
			abort();
		faulted =
		    left ? syscall(SYS_open, getenv("QJOULE_FAULTED"), O_WRONLY | O_CLOEXEC) : -1;
	}
	if (!left || strcmp(kind, wanted) || --left)
		return false;
	if (syscall(SYS_write, faulted, ".", 1) != 1)
		abort();
	errno = number;
	return true;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* open(2) and its variants take a mode only if they create a file. */
#define OPEN(name, parameters, arguments)                                                          \
	int name parameters                                                                        \
	{                                                                                          \
		unsigned mode = 0;                                                                 \
                                                                                                   \
		if (flags & (O_CREAT | __O_TMPFILE)) {                                             \
			va_list more;                                                              \
                                                                                                   \
			va_start(more, flags);                                                     \
			mode = va_arg(more, unsigned);                                             \
			va_end(more);                                                              \
		}                                                                                  \
		return fails("open") ? -1 : REAL(name) arguments;                                  \
	}

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

ssize_t read(int fd, void *bytes, size_t size)
{
	return fails("read") ? -1 : REAL(read)(fd, bytes, size);
}

ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
	return fails("read") ? -1 : REAL(pread)(fd, bytes, size, at);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	return fails("recvmsg") ? -1 : REAL(recvmsg)(fd, message, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return fails("sendmsg") ? -1 : REAL(sendmsg)(fd, message, flags);
}

int socketpair(int domain, int type, int protocol, int pair[2])
{
	return fails("socketpair") ? -1 : REAL(socketpair)(domain, type, protocol, pair);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return fails("mmap") ? MAP_FAILED : REAL(mmap)(at, bytes, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return fails("mmap") ? MAP_FAILED : REAL(mmap64)(at, bytes, protection, flags, fd, offset);
}

FILE *fopen64(const char *path, const char *mode)
{
	return fails("open") ? NULL : REAL(fopen64)(path, mode);
}

#define FCNTL(name)                                                                                \
	int name(int fd, int command, ...)                                                         \
	{                                                                                          \
		va_list more;                                                                      \
		long argument;                                                                     \
                                                                                                   \
		va_start(more, command);                                                           \
		argument = va_arg(more, long);                                                     \
		va_end(more);                                                                      \
		return fails("fcntl") ? -1 : REAL(name)(fd, command, argument);                    \
	}

FCNTL(fcntl)
FCNTL(fcntl64)

pid_t fork(void)
{
	return fails("fork") ? -1 : REAL(fork)();
}

int execv(const char *path, char *const words[])
{
	return fails("exec") ? -1 : REAL(execv)(path, words);
}

/* libbpf calls bpf(2) and perf_event_open(2) this way. */
long syscall(long number, ...)
{
	long a, b, c, d, e, f;
	va_list more;

	va_start(more, number);
	a = va_arg(more, long);
	b = va_arg(more, long);
	c = va_arg(more, long);
	d = va_arg(more, long);
	e = va_arg(more, long);
	f = va_arg(more, long);
	va_end(more);
	if ((number == SYS_bpf && fails("bpf")) ||
	    (number == SYS_perf_event_open && fails("perf")) ||
	    (number == SYS_openat2 && fails("open")))
		return -1;
	return REAL(syscall)(number, a, b, c, d, e, f);
}
