/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two ends of a process. ends FAMILY-4-ADDRESS PORT HOW connects and sends "said late" in a way that only the end of the process brings
 * out: by a handler of exit's that was registered before the first socket, or by a stream that nobody flushes.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TEXT "said late"

static int fd;

static void says(void)
{
	if (write(fd, TEXT, strlen(TEXT)) != (ssize_t)strlen(TEXT))
		perror("write at exit");
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	FILE *file;

	if (argc != 4 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	if (!strcmp(argv[3], "handler") && atexit(says))
		return 1;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		perror("connect");
		return 1;
	}
	if (!strcmp(argv[3], "stream")) {
		file = fdopen(fd, "w");
		if (!file || fprintf(file, TEXT) != (int)strlen(TEXT))
			return 1;
	}
	return 0;
}
