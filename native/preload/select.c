/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * select and pselect, as poll: the sets are turned into fds and back with the masks that Linux has for them (POLLIN_SET and its kin in
 * fs/select.c). Sets may be longer than fd_set where the program made them so.
 */
#include <string.h>
#include <time.h>

#include "preload/preload.h"

#define FDS_ON_STACK 128
#define WORD (8 * (int)sizeof(unsigned long))

#define READS (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define WRITES (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define EXCEPTS POLLPRI

static unsigned long word_of(const fd_set *set, int i)
{
	unsigned long w = 0;

	if (set)
		memcpy(&w, (const char *)set + (size_t)i * sizeof(w), sizeof(w));
	return w;
}

/* The bits of the i-th word that count. */
static unsigned long valid(int i, int n)
{
	int left = n - i * WORD;

	return left >= WORD ? ~0ul : (1ul << left) - 1;
}

static bool any_ours(int n, fd_set *const sets[3])
{
	bool ours = false;

	for (int i = 0; i * WORD < n; i++) {
		unsigned long any = (word_of(sets[0], i) | word_of(sets[1], i) | word_of(sets[2], i)) & valid(i, n);

		for (; any; any &= any - 1)
			ours |= pl_polls_ours(i * WORD + __builtin_ctzl(any));
	}
	return ours;
}

/* How many. `fds` NULL: only counted. */
static nfds_t to_fds(int n, fd_set *const sets[3], struct pollfd *fds)
{
	nfds_t count = 0;

	for (int i = 0; i * WORD < n; i++) {
		unsigned long in = word_of(sets[0], i), out = word_of(sets[1], i), ex = word_of(sets[2], i);

		for (unsigned long any = (in | out | ex) & valid(i, n); any; any &= any - 1) {
			unsigned long bit = any & -any;

			if (fds)
				fds[count] = (struct pollfd){ .fd = i * WORD + __builtin_ctzl(any),
							      .events = (short)((in & bit ? READS & ~(POLLHUP | POLLERR) : 0) |
										(out & bit ? WRITES & ~POLLERR : 0) |
										(ex & bit ? EXCEPTS : 0)) };
			count++;
		}
	}
	return count;
}

static void set_bit(fd_set *set, int fd)
{
	unsigned long w = word_of(set, fd / WORD) | 1ul << fd % WORD;

	memcpy((char *)set + (size_t)(fd / WORD) * sizeof(w), &w, sizeof(w));
}

/* How many bits are set. As in Linux whole words are written, whatever was asked of the last one. */
static int from_fds(const struct pollfd *fds, nfds_t count, int n, fd_set *const sets[3])
{
	static const struct {
		short asked, told;
	} bits[3] = { { POLLIN, READS }, { POLLOUT, WRITES }, { POLLPRI, EXCEPTS } };
	int told = 0;

	for (int s = 0; s < 3; s++) {
		if (!sets[s])
			continue;
		memset(sets[s], 0, (size_t)((n + WORD - 1) / WORD) * sizeof(unsigned long));
		for (nfds_t i = 0; i < count; i++) {
			if (!(fds[i].events & bits[s].asked) || !(fds[i].revents & bits[s].told))
				continue;
			set_bit(sets[s], fds[i].fd);
			told++;
		}
	}
	return told;
}

static int select_ours(int n, fd_set *const sets[3], int64_t timeout_ns, const sigset_t *mask)
{
	struct pollfd some[FDS_ON_STACK], *fds = some;
	nfds_t count = to_fds(n, sets, NULL);
	void *more PL_LENT = NULL;
	int rc;

	if (count > FDS_ON_STACK) {
		rc = pl_lend(&more, count * sizeof(*fds));
		if (rc)
			return rc;
		fds = more;
	}
	to_fds(n, sets, fds);
	rc = pl_poll(fds, count, timeout_ns, &(struct pl_wait){ PYVMA_WAITS_SELECT, mask });
	for (nfds_t i = 0; i < count && rc >= 0; i++)
		if (fds[i].revents & POLLNVAL)
			rc = -EBADF;
	return rc < 0 ? rc : from_fds(fds, count, n, sets);
}

PL_EXPORT int select(int n, fd_set *in, fd_set *out, fd_set *ex, struct timeval *tv)
{
	fd_set *const sets[3] = { in, out, ex };
	int64_t timeout_ns = -1, start = 0, left;
	int rc;

	if (n < 0 || (tv && (tv->tv_sec < 0 || tv->tv_usec < 0)) || !any_ours(n, sets))
		return PL_REAL(select)(n, in, out, ex, tv);
	if (tv) {
		timeout_ns = PV_MIN((int64_t)tv->tv_sec + tv->tv_usec / 1000000, INT64_C(1) << 32) * PL_NS_PER_S +
			     tv->tv_usec % 1000000 * 1000;
		start = pl_now_ns();
	}
	rc = select_ours(n, sets, timeout_ns, NULL);
	/* Linux tells what is left of the time, whatever the result. */
	if (tv) {
		left = PV_MAX(timeout_ns - (pl_now_ns() - start), INT64_C(0));
		tv->tv_sec = left / PL_NS_PER_S;
		tv->tv_usec = left % PL_NS_PER_S / 1000;
	}
	return (int)pl_result(rc);
}

PL_EXPORT int pselect(int n, fd_set *in, fd_set *out, fd_set *ex, const struct timespec *ts, const sigset_t *mask)
{
	fd_set *const sets[3] = { in, out, ex };
	int64_t timeout_ns = pl_timespec_ns(ts);

	if (n < 0 || timeout_ns < -1 || !any_ours(n, sets))
		return PL_REAL(pselect)(n, in, out, ex, ts, mask);
	return (int)pl_result(select_ours(n, sets, timeout_ns, mask));
}
