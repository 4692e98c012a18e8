/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fd to what it leads to. 65536 chunks of 65536 words, a chunk made by the first number in it that is ours and never unmade: a limit of a
 * billion fds costs the pages that are written to, and numbers below zero find a chunk that never is.
 */
#include <sys/mman.h>

#include "preload/preload.h"

_Atomic(_Atomic(pl_word) *) pl_table[PL_CHUNK];

static _Atomic(pl_word) *slot(int fd)
{
	_Atomic(pl_word) *chunk = atomic_load_explicit(&pl_table[(unsigned int)fd >> PL_CHUNK_BITS], memory_order_acquire);

	return chunk ? &chunk[(unsigned int)fd % PL_CHUNK] : NULL;
}

static bool make_chunk(int fd)
{
	size_t size = PL_CHUNK * sizeof(_Atomic(pl_word));
	void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	_Atomic(pl_word) *none = NULL;

	if (made == MAP_FAILED)
		return false;
	if (!atomic_compare_exchange_strong(&pl_table[(unsigned int)fd >> PL_CHUNK_BITS], &none, (_Atomic(pl_word) *)made))
		munmap(made, size); /* another thread was first */
	return true;
}

bool pl_put(int fd, pl_word word)
{
	if (fd < 0 || (!slot(fd) && !make_chunk(fd)))
		return false;
	atomic_store_explicit(slot(fd), word, memory_order_release);
	return true;
}

pl_word pl_take(int fd)
{
	_Atomic(pl_word) *at = slot(fd);

	return at && atomic_load_explicit(at, memory_order_relaxed) ? atomic_exchange(at, 0) : 0;
}

bool pl_change(int fd, pl_word was, pl_word word)
{
	_Atomic(pl_word) *at = slot(fd);

	return at && atomic_compare_exchange_strong(at, &was, word);
}

int pl_next(int fd, int last)
{
	for (unsigned int i = (unsigned int)fd; i <= (unsigned int)last; i++) {
		if (!atomic_load_explicit(&pl_table[i >> PL_CHUNK_BITS], memory_order_acquire))
			i |= PL_CHUNK - 1;
		else if (pl_get((int)i))
			return (int)i;
	}
	return -1;
}
