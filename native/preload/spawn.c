/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that are started without a fork which the program sees: posix_spawn, system, popen. The child gets numbers of ours, so connections
 * behind them are handed back first: those that survive an exec, and those that a file action gives another number to.
 *
 * A list of file actions is the C library's own; what is in it we remember as it is made. A list that we have not seen being made hands over
 * whatever there is.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "preload/preload.h"

enum kind { CLOSE, OPEN, DUP2, CLOSE_FROM };
struct action {
	enum kind kind;
	int fd, to;
};

struct list {
	const posix_spawn_file_actions_t *of;
	struct action *actions;
	unsigned int n;
	struct list *next;
};

static pthread_mutex_t lists_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list *lists;

void pl_spawn_forked(void)
{
	pthread_mutex_init(&lists_lock, NULL);
}

/* ---- the lists --------------------------------------------------------------------------------------------------------- */

static struct list **find(const posix_spawn_file_actions_t *of)
{
	struct list **at = &lists;

	while (*at && (*at)->of != of)
		at = &(*at)->next;
	return at;
}

static void forget(const posix_spawn_file_actions_t *of)
{
	struct list **at, *l;

	pthread_mutex_lock(&lists_lock);
	at = find(of);
	l = *at;
	if (l)
		*at = l->next;
	pthread_mutex_unlock(&lists_lock);
	if (l)
		free(l->actions);
	free(l);
}

static void begin(const posix_spawn_file_actions_t *of)
{
	struct list *l = calloc(1, sizeof(*l));

	forget(of);
	if (!l)
		return;
	l->of = of;
	pthread_mutex_lock(&lists_lock);
	l->next = lists;
	lists = l;
	pthread_mutex_unlock(&lists_lock);
}

/* Without memory for it the list is one that is not known. */
static void add(const posix_spawn_file_actions_t *of, enum kind kind, int fd, int to)
{
	struct action *grown = NULL;
	struct list *l;

	pthread_mutex_lock(&lists_lock);
	l = *find(of);
	if (l)
		grown = realloc(l->actions, (l->n + 1) * sizeof(*grown));
	if (grown) {
		l->actions = grown;
		grown[l->n++] = (struct action){ kind, fd, to };
	}
	pthread_mutex_unlock(&lists_lock);
	if (l && !grown)
		forget(of);
}

PL_EXPORT int posix_spawn_file_actions_init(posix_spawn_file_actions_t *of)
{
	int rc = PL_REAL(posix_spawn_file_actions_init)(of);

	if (!rc)
		begin(of);
	return rc;
}

PL_EXPORT int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *of)
{
	forget(of);
	return PL_REAL(posix_spawn_file_actions_destroy)(of);
}

PL_EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *of, int fd, int to)
{
	int rc = PL_REAL(posix_spawn_file_actions_adddup2)(of, fd, to);

	if (!rc)
		add(of, DUP2, fd, to);
	return rc;
}

PL_EXPORT int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *of, int fd)
{
	int rc = PL_REAL(posix_spawn_file_actions_addclose)(of, fd);

	if (!rc)
		add(of, CLOSE, fd, -1);
	return rc;
}

PL_EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *restrict of, int fd, const char *restrict path,
					       int flags, mode_t mode)
{
	int rc = PL_REAL(posix_spawn_file_actions_addopen)(of, fd, path, flags, mode);

	if (!rc)
		add(of, OPEN, fd, -1);
	return rc;
}

PL_EXPORT int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *of, int from)
{
	int rc = PL_REAL(posix_spawn_file_actions_addclosefrom_np)(of, from);

	if (!rc)
		add(of, CLOSE_FROM, from, -1);
	return rc;
}

/* ---- who survives ------------------------------------------------------------------------------------------------------ */

/* A number that an action has changed, and the number of ours that it leads to by then; -1: none of ours. */
struct changed {
	int fd, from;
};

struct after {
	struct changed *changed;
	unsigned int n;
	int closed_from; /* what was not changed is closed from here on */
	bool all; /* nothing is known: every number may survive */
};

static struct changed *look(const struct after *a, int fd)
{
	for (unsigned int i = 0; i < a->n; i++)
		if (a->changed[i].fd == fd)
			return &a->changed[i];
	return NULL;
}

static int leads_to(const struct after *a, int fd)
{
	const struct changed *c = look(a, fd);

	return c ? c->from : fd < a->closed_from ? fd : -1;
}

static void change(struct after *a, int fd, int from)
{
	struct changed *c = look(a, fd);

	if (!c)
		c = &a->changed[a->n++];
	*c = (struct changed){ fd, from };
}

static void act(struct after *a, const struct action *action)
{
	switch (action->kind) {
	case CLOSE:
	case OPEN: /* the C library takes the number for it, whatever it was before */
		change(a, action->fd, -1);
		break;
	case DUP2: /* onto itself it takes FD_CLOEXEC away */
		change(a, action->to, leads_to(a, action->fd));
		break;
	case CLOSE_FROM:
		a->closed_from = PV_MIN(a->closed_from, action->fd);
		for (unsigned int i = 0; i < a->n; i++)
			if (a->changed[i].fd >= action->fd)
				a->changed[i].from = -1;
	}
}

static void play(struct after *a, const posix_spawn_file_actions_t *of)
{
	const struct list *l;

	*a = (struct after){ .closed_from = INT32_MAX };
	pthread_mutex_lock(&lists_lock);
	l = *find(of);
	if (l)
		a->changed = calloc(l->n + 1, sizeof(*a->changed));
	a->all = !a->changed;
	for (unsigned int i = 0; a->changed && i < l->n; i++)
		act(a, &l->actions[i]);
	pthread_mutex_unlock(&lists_lock);
}

static bool survives(const struct after *a, int fd)
{
	int flags = PL_REAL(fcntl)(fd, F_GETFD);

	if (a->all || flags < 0)
		return a->all;
	return !(flags & FD_CLOEXEC) && !look(a, fd) && fd < a->closed_from;
}

static int hand_back(const struct after *a)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int rc = 0, one;

	for (unsigned int i = 0; i < a->n; i++)
		if (a->changed[i].from >= 0) {
			one = pyvma_hand_back_fd(a->changed[i].from, 0);
			rc = rc ? rc : one;
		}
	if (!dir)
		return rc ? rc : pyvma_hand_back_inheritable();
	while ((entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fd == dirfd(dir) || !survives(a, fd))
			continue;
		one = pyvma_hand_back_fd(fd, 0);
		rc = rc ? rc : one;
	}
	closedir(dir);
	return rc;
}

static void hand_over(const posix_spawn_file_actions_t *of)
{
	struct after a;
	int saved = errno;

	if (!of || !pl_is_user()) {
		pl_hand_over();
		return;
	}
	play(&a, of);
	if (PL_IN(hand_back(&a)) < 0)
		pl_say(pyvma_last_error(), "a connection does not survive posix_spawn");
	free(a.changed);
	errno = saved;
}

/* ---- the calls --------------------------------------------------------------------------------------------------------- */

PL_EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *restrict actions,
			  const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const env[restrict])
{
	hand_over(actions);
	return PL_REAL(posix_spawn)(pid, path, actions, attr, argv, env);
}

PL_EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *restrict actions,
			   const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const env[restrict])
{
	hand_over(actions);
	return PL_REAL(posix_spawnp)(pid, file, actions, attr, argv, env);
}

/* Their spawn is inside of the C library. */
PL_EXPORT int system(const char *command)
{
	if (command)
		pl_hand_over();
	return PL_REAL(system)(command);
}

PL_EXPORT FILE *popen(const char *command, const char *mode)
{
	pl_hand_over();
	return PL_REAL(popen)(command, mode);
}
