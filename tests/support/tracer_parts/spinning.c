// SPDX-License-Identifier: Apache-2.0
/*
 * Computes for ever, with a secret on its stack, and listens, as servers do:
 *   spinning SECRET
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void spin(const char *secret)
{
	char kept[2048];

	for (size_t i = 0; i + 1 < sizeof(kept); i++)
		kept[i] = secret[i % strlen(secret)];
	kept[sizeof(kept) - 1] = 0;
	for (;;)
		for (size_t i = 0; i < sizeof(kept); i++)
			sum += ((volatile char *)kept)[i];
}

int main(int argc, char **argv)
{
	char secret[64];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc < 2 || listen(fd, 1))
		return 1;
	snprintf(secret, sizeof(secret), "%s", argv[1]);
	memset(argv[1], 'x', strlen(argv[1]));
	spin(secret);
}
