// SPDX-License-Identifier: Apache-2.0
/* Maps its own code, and unmaps it, for ever, and listens, as servers do. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

int main(void)
{
	int own = open("/proc/self/exe", O_RDONLY), fd = socket(AF_INET, SOCK_STREAM, 0);

	if (own < 0 || listen(fd, 1))
		return 1;
	for (;;)
		munmap(mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, own, 0), 4096);
}
