/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Out of a program that is running: its sockets and sets become the kernel's, with what they are in the midst of, and the engine stops. What
 * cannot be handed back is lost, a socket that is not connected: nothing keeps the engine.
 *
 * Other threads may be in calls meanwhile. They come back from the engine as from a socket that another thread has handed back, find the
 * number no more in the table and go on by the kernel.
 */
#include <stdio.h>

#include "preload/preload.h"

static void sets(void)
{
	for (int fd = pl_next(0, INT32_MAX); fd >= 0; fd = pl_next(fd + 1, INT32_MAX)) {
		struct pl_set *set = pl_set_of(pl_get(fd));

		if (!set)
			continue;
		pl_set_retreat(set);
		(void)pl_take(fd);
	}
}

static void sockets(void)
{
	for (int fd = pl_next(0, INT32_MAX); fd >= 0; fd = pl_next(fd + 1, INT32_MAX)) {
		pyvma_sock *h = pl_peek(fd);

		if (pl_get(fd) == PL_LATE)
			(void)pl_change(fd, PL_LATE, 0);
		else if (h && pl_change(fd, (pl_word)h, 0))
			(void)pyvma_sock_detach(h);
	}
}

static int retreat(void)
{
	int lost = pyvma_retreat();

	sets();
	sockets();
	return lost;
}

void pl_retreat(const char *why)
{
	char text[64];
	int lost;

	pl_off(why);
	lost = (int)PL_IN(retreat());
	if (lost <= 0)
		return;
	snprintf(text, sizeof(text), "%d %s", lost, lost == 1 ? "connection is lost" : "connections are lost");
	pl_say(pyvma_last_error(), text);
}
