/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes on the fabric. A client lives as long as the lock on its byte of the file is held; the kernel drops that with the last
 * descriptor of the file that the process opened, so after its last thread has stopped. No pid is compared: numbers are reused
 * and differ between namespaces.
 */
#include <linux/membarrier.h>

#include "softnic/fab.h"
#include "softnic/fab_sys.h"

static bool byte_locked(int fd, int64_t start, int64_t len)
{
	short type = F_UNLCK;

	return sn_file_lock(fd, F_OFD_GETLK, F_WRLCK, start, len, &type) == 0 && type != F_UNLCK;
}

/* Anybody but whoever holds `fd`. */
bool sn_clients_any(int fd)
{
	return byte_locked(fd, SN_LOCK_CLIENT, SN_CLIENTS);
}

bool sn_client_alive(struct sn_fabric *f, uint32_t client)
{
	if (client == f->client)
		return true;
	return client < SN_CLIENTS && byte_locked(f->fd, SN_LOCK_CLIENT + client, 1);
}

void sn_barrier(struct sn_fabric *f)
{
	sn_full_fence();
	if (!f->fences)
		sn_sys(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void sn_change_begin(struct sn_fabric *f)
{
	uint64_t g = sn_get(&f->s->generation);

	atomic_store(&f->s->generation, g | 1);
}

void sn_change_end(struct sn_fabric *f)
{
	uint64_t g = sn_get(&f->s->generation);

	atomic_store(&f->s->generation, (g | 1) + 1);
	sn_barrier(f);
	sn_rxq_collect(f);
}

/* Frees whatever `client` left behind. Each step may be the last that its caller lives to do: it is done again then. */
static void reap(struct sn_fabric *f, uint32_t client)
{
	struct sn_shm *s = f->s;

	sn_change_begin(f);
	sn_rules_drop(f, client, UINT32_MAX);
	for (uint32_t i = 0; i < SN_RXQS; i++) {
		if (sn_get(&s->rxq[i].state) == SN_LIVE && sn_get(&s->rxq[i].client) == client)
			sn_rxq_kill(f, i);
	}
	for (uint32_t i = 0; i < SN_LANES; i++) {
		if (sn_get(&s->lane_ent[i].state) != SN_FREE && sn_get(&s->lane_ent[i].client) == client)
			sn_lane_put(f, i);
	}
	for (uint32_t i = 0; i < SN_PORTS; i++)
		sn_port_settle(f, i);
	sn_change_end(f);
	for (uint32_t i = 0; i < SN_RXQS; i++) {
		if (sn_get(&s->rxq[i].state) == SN_LIVE)
			sn_rxq_unclaim(f, i, client);
	}
	sn_wakers_drop(f, client);
	sn_set(&s->client[client].state, SN_FREE);
}

void sn_clients_reap(struct sn_fabric *f)
{
	for (uint32_t i = 0; i < SN_CLIENTS; i++) {
		if (sn_get(&f->s->client[i].state) != SN_FREE && i != f->client && !sn_client_alive(f, i))
			reap(f, i);
	}
}

int sn_client_join(struct sn_fabric *f)
{
	f->client = UINT32_MAX;
	sn_clients_reap(f);
	for (uint32_t i = 0; i < SN_CLIENTS; i++) {
		if (sn_get(&f->s->client[i].state) != SN_FREE ||
		    sn_file_lock(f->fd, F_OFD_SETLK, F_WRLCK, SN_LOCK_CLIENT + i, 1, NULL))
			continue;
		sn_set(&f->s->client[i].pid, (uint32_t)getpid());
		sn_set(&f->s->client[i].state, SN_LIVE);
		f->client = i;
		return 0;
	}
	return sn_fail(-ENOSPC, "fabric %s: %u processes are on it already", f->name, SN_CLIENTS);
}

void sn_client_ends(struct sn_fabric *f)
{
	sn_set(&f->s->client[f->client].state, SN_DYING);
}

/* The lock on its byte alone does not tell: whoever is about to go has it to the last moment, and of two that go together each would
 * leave the file to the other. */
bool sn_others_stay(struct sn_fabric *f)
{
	for (uint32_t i = 0; i < SN_CLIENTS; i++) {
		if (i != f->client && sn_get(&f->s->client[i].state) == SN_LIVE && sn_client_alive(f, i))
			return true;
	}
	return false;
}

void sn_client_leave(struct sn_fabric *f)
{
	reap(f, f->client);
}
