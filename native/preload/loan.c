/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call has of its own while it is made, and is too much for the stack: memory, a pipe, a set. The call has calls of the engine's within it but is
 * none, so a handler's jump leaves it at once, wherever it is. Therefore each loan is known to its thread, with where on the stack it was taken,
 * and a jump gives back those of the frames that it leaves. Asked for and given back is within the engine, where no jump leaves malloc.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "preload/preload.h"

struct loan {
	struct loan *next;
	uintptr_t frame; /* of who has it, or one beneath */
	int pipe[2];
	pyvma_epoll *set;
	_Alignas(max_align_t) char mem[];
};

static _Thread_local struct loan *loans;

static int take(size_t len, uintptr_t frame, void **at)
{
	struct loan *l = malloc(sizeof(*l) + len);

	if (!l)
		return -ENOMEM;
	*l = (struct loan){ .next = loans, .frame = frame, .pipe = { -1, -1 } };
	loans = l;
	*at = l->mem;
	return 0;
}

int pl_lend(void **at, size_t len)
{
	return (int)PL_IN(take(len, (uintptr_t)__builtin_frame_address(0), at));
}

static struct loan *loan_of(void *at)
{
	return (struct loan *)((char *)at - offsetof(struct loan, mem));
}

int *pl_lent_pipe(void *at)
{
	return loan_of(at)->pipe;
}

pyvma_epoll **pl_lent_set(void *at)
{
	return &loan_of(at)->set;
}

static int end(struct loan **where)
{
	struct loan *l = *where;

	*where = l->next;
	for (int i = 0; i < 2; i++)
		if (l->pipe[i] >= 0)
			(void)PL_REAL(close)(l->pipe[i]);
	if (l->set)
		pyvma_epoll_close(l->set);
	free(l);
	return 0;
}

/* It is no more where a jump away from it was followed by one back: a user thread that is left for another stack, and goes on later. */
static int give_back(const struct loan *l)
{
	struct loan **where = &loans;

	while (*where && *where != l)
		where = &(*where)->next;
	return *where ? end(where) : 0;
}

void pl_give_back(void *mem)
{
	/* A thread that is cancelled comes with the engine left, or by pthread_exit out of a handler that interrupted it: then cancellation is off. */
	if (PL_IN(give_back(loan_of(mem))))
		(void)give_back(loan_of(mem));
}

/* Of two frames on one stack the younger is the lower one. The other stack is that of handlers, and is left as a whole. */
static bool leaves(uintptr_t frame, uintptr_t to, const stack_t *other)
{
	uintptr_t low = (uintptr_t)other->ss_sp;
	bool on = !(other->ss_flags & SS_DISABLE), from = on && frame - low < other->ss_size,
	     back = on && to - low < other->ss_size;

	return from == back ? frame < to : from;
}

static int left(uintptr_t to)
{
	stack_t other = { .ss_flags = SS_DISABLE };

	(void)sigaltstack(NULL, &other);
	for (struct loan **where = &loans; *where;) {
		if (leaves((*where)->frame, to, &other))
			(void)end(where);
		else
			where = &(*where)->next;
	}
	return 0;
}

void pl_loans_left(uintptr_t to)
{
	if (pv_unlikely(loans != NULL) && to != UINTPTR_MAX)
		(void)PL_IN(left(to));
}
