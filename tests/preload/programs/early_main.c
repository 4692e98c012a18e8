/* SPDX-License-Identifier: BSD-3-Clause */
/* Is linked with early.c's library, or with one that needs it, and is an echo's client afterwards: early_main IPv4 PORT. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	const int *early = dlsym(RTLD_DEFAULT, "early_done");
	char buf[8];

	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || write(fd, "echo", 4) != 4 || read(fd, buf, sizeof(buf)) != 4)
		return 1;
	printf("early %d\n", early ? *early : -1);
	return 0;
}
