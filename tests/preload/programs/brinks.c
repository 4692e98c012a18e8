/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What calls.c does not come to. brinks accept PORT: accepts without a number, and with each flag, connections of both halves of a listener;
 * brinks file IPv4 PORT: sends a file that ends before the count; brinks rights: a control message that is longer than its room;
 * brinks cleared IPv4 PORT: connects after it has emptied its environment; brinks hops IPv4 PORT: says how far datagrams to groups go;
 * brinks datagrams, brinks listener: an fd whose number becomes another file's; brinks source IPv4 IPv4 PORT: connects from an address
 * without a port.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WANT(cond)                                                                                                                 \
	do {                                                                                                                       \
		if (!(cond)) {                                                                                                     \
			fprintf(stderr, "line %d: ", __LINE__);                                                                    \
			perror(#cond);                                                                                             \
			_exit(1);                                                                                                  \
		}                                                                                                                  \
	} while (0)

static struct sockaddr_in at(const char *text, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };

	WANT(inet_pton(AF_INET, text, &to.sin_addr) == 1);
	return to;
}

static void readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	WANT(poll(&p, 1, 60000) == 1 && p.revents == POLLIN);
}

/* It is a whole connection: its byte comes back. */
static void serve(int fd, int fdflags, int flags)
{
	char c;

	WANT(fd >= 0 && fcntl(fd, F_GETFD) == fdflags && (fcntl(fd, F_GETFL) & O_NONBLOCK) == flags);
	readable(fd);
	WANT(read(fd, &c, 1) == 1 && write(fd, &c, 1) == 1);
	WANT(close(fd) == 0);
}

static void without_number(int listener)
{
	struct rlimit was, now;
	int fd, next = dup(listener);

	WANT(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &was) == 0);
	now = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = was.rlim_max };
	for (int i = 0; i < 2; i++) {
		WANT(setrlimit(RLIMIT_NOFILE, &now) == 0);
		fd = accept(listener, NULL, NULL);
		WANT(fd == -1 && errno == EMFILE);
		WANT(setrlimit(RLIMIT_NOFILE, &was) == 0);
		readable(listener);
	}
}

static void accepts(const char *port)
{
	struct sockaddr_in name = at("0.0.0.0", port), lo = at("127.0.0.1", port);
	int listener = socket(AF_INET, SOCK_STREAM, 0), to;
	char c;

	WANT(bind(listener, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(listener, 8) == 0);
	for (int half = 0; half < 2; half++) {
		static const struct {
			int flags, fdflags, nonblock;
		} each[] = { { 0, 0, 0 }, { SOCK_CLOEXEC, FD_CLOEXEC, 0 }, { SOCK_NONBLOCK, 0, O_NONBLOCK } };

		if (!half) {
			puts("ready");
			fflush(stdout);
		}
		for (int i = 0; i < 3; i++) {
			to = half ? socket(AF_INET, SOCK_STREAM, 0) : -1;
			WANT(!half || connect(to, (struct sockaddr *)&lo, sizeof(lo)) == 0);
			WANT(!half || write(to, "x", 1) == 1);
			readable(listener);
			if (!i)
				without_number(listener);
			serve(accept4(listener, NULL, NULL, each[i].flags), each[i].fdflags, each[i].nonblock);
			WANT(!half || (read(to, &c, 1) == 1 && c == 'x' && close(to) == 0));
		}
	}
	WANT(accept4(listener, NULL, NULL, 0x40000000) == -1 && errno == EINVAL);
}

/* Nothing is held back for what will not come. */
static void sends_file(const char *host, const char *port)
{
	struct sockaddr_in to = at(host, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), file = memfd_create("brinks", MFD_CLOEXEC), left = -1;
	char buf[1000] = { 0 };

	WANT(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	WANT(write(file, buf, sizeof(buf)) == sizeof(buf) && lseek(file, 0, SEEK_SET) == 0);
	WANT(sendfile(fd, file, NULL, 1 << 20) == sizeof(buf));
	WANT(ioctl(fd, SIOCOUTQNSD, &left) == 0 && left == 0);
	WANT(recv(fd, buf, sizeof(buf), MSG_WAITALL) == sizeof(buf));
}

static void passes_nothing(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = CMSG_SPACE(sizeof(int));
	char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec iov = { "x", 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = two + page - room, .msg_controllen = room };
	int pair[2];

	WANT(two != MAP_FAILED && mprotect(two + page, page, PROT_NONE) == 0);
	WANT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(page) };
	WANT(sendmsg(pair[0], &msg, 0) == -1 && errno == EINVAL);
}

/* A set knows what it watches by file and number. A number that is let go of, while others lead to the same socket, may be another file's
 * at once, which has nothing to do with what the set had by it. */
static void changes_hands(int type)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct epoll_event ev = { .events = EPOLLIN }, got;
	int set = epoll_create1(0), fd = socket(AF_INET, type, 0), twin, ends[2];
	struct pollfd p = { .fd = fd, .events = POLLIN };

	WANT(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0 && (type == SOCK_DGRAM || listen(fd, 1) == 0));
	WANT(poll(&p, 1, 0) == 0); /* now it is decided whose it is */
	WANT((twin = dup(fd)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, twin, &ev) == 0);
	WANT(close(fd) == 0 && pipe(ends) == 0 && ends[0] == fd);
	ev.data.u32 = 7;
	WANT(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &ev) == 0);
	WANT(epoll_ctl(set, EPOLL_CTL_DEL, twin, NULL) == 0);
	WANT(write(ends[1], "x", 1) == 1 && epoll_wait(set, &got, 1, 1000) == 1 && got.data.u32 == 7);
	WANT(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
	WANT(close(twin) == 0 && close(set) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* The port is chosen as late as it can be; the address stays what the program wanted. */
static void comes_from(const char *source, const char *host, const char *port)
{
	struct sockaddr_in from = at(source, "0"), to = at(host, port), name;
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	socklen_t len = sizeof(name);
	char said[INET_ADDRSTRLEN] = "";

	WANT(setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) == 0);
	WANT(bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	WANT(getsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.sin_addr.s_addr == from.sin_addr.s_addr && name.sin_port);
	WANT(recv(fd, said, sizeof(said) - 1, MSG_WAITALL) > 0 && !strcmp(said, source));
	WANT(close(fd) == 0);
}

/* As exim does. */
static void cleared(const char *host, const char *port)
{
	struct sockaddr_in to = at(host, port);
	int fd = clearenv() ? -1 : socket(AF_INET, SOCK_STREAM, 0);
	char c;

	WANT(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && write(fd, "x", 1) == 1);
	readable(fd);
	WANT(read(fd, &c, 1) == 1 && c == 'x');
}

static int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int n = 0;

	WANT(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

/* A parent that does so and leaves the socket to its children (kamailio) has no engine, and so no thread of it. */
static void says_hops(int family, int level, int name, int loop)
{
	int fd = socket(family, SOCK_DGRAM, 0), off = 0, five = 5;
	socklen_t len = sizeof(five);

	WANT(setsockopt(fd, level, name, &five, len) == 0 && setsockopt(fd, level, loop, &off, sizeof(off)) == 0);
	WANT(threads() == 1);
	/* Used, it still has them. */
	WANT(recv(fd, &off, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	five = off = 1;
	WANT(getsockopt(fd, level, name, &five, &len) == 0 && five == 5 && getsockopt(fd, level, loop, &off, &len) == 0 && !off);
	WANT(close(fd) == 0);
}

static void hops(const char *host, const char *port)
{
	pid_t child = fork();
	int status;

	if (!child) {
		says_hops(AF_INET, IPPROTO_IP, IP_MULTICAST_TTL, IP_MULTICAST_LOOP);
		_exit(0);
	}
	WANT(waitpid(child, &status, 0) == child && status == 0);
	says_hops(AF_INET6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP);
	cleared(host, port);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "accept"))
		accepts(argv[2]);
	else if (argc == 4 && !strcmp(argv[1], "file"))
		sends_file(argv[2], argv[3]);
	else if (argc == 4 && !strcmp(argv[1], "cleared"))
		cleared(argv[2], argv[3]);
	else if (argc == 4 && !strcmp(argv[1], "hops"))
		hops(argv[2], argv[3]);
	else if (argc == 2 && !strcmp(argv[1], "rights"))
		passes_nothing();
	else if (argc == 2 && !strcmp(argv[1], "datagrams"))
		changes_hands(SOCK_DGRAM);
	else if (argc == 2 && !strcmp(argv[1], "listener"))
		changes_hands(SOCK_STREAM);
	else if (argc == 5 && !strcmp(argv[1], "source"))
		comes_from(argv[2], argv[3], argv[4]);
	else
		return 2;
	puts("done");
	return 0;
}
