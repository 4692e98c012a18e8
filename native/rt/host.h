/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interfaces that the kernel owns: its addresses, MTU, link, routes and neighbours, by rtnetlink, in force for our rings.
 *
 * An entry of the settings names such an interface; it need not be there yet. While it is and its ring can be opened it is one of
 * e->ports, and the stack's interface follows it: renamed, given and taken addresses, another MTU, link down and up. When it is
 * deleted the ring is closed; when one of that name comes again it is opened again. Why an entry has no ring is kept as a text.
 *
 * One namespace's interfaces: that of the thread that started the engine, and so of the progress thread. Other threads may go to others:
 * sockets made there are the kernel's, and no ring is opened from there.
 *
 * All with the engine's lock. Changes are read by whoever sleeps: the progress thread, and a call that waits; without that thread
 * also by polls, now and then.
 */
#ifndef PV_RT_HOST_H
#define PV_RT_HOST_H

#include "net/host.h"
#include "rt/engine.h"

/* What the kernel says of an interface. */
struct pv_host_state {
	uint32_t kernel_index, mtu;
	uint8_t mac[PV_ETH_ALEN];
	bool link_up;
	bool vrf; /* it belongs to one */
	struct pv_ifaddr addr[PV_IFACE_ADDR_MAX];
	uint32_t naddr;
};

/* ---- for the engine ---------------------------------------------------------------------------------------------------- */

/* What the stack's network layer asks; `ctx` is the engine. */
extern const struct pv_host_ops pv_host_ops;

/* An entry whose interface is the kernel's. 0 or -errno with a text. */
int pv_host_add(struct pv_engine *e, const struct pv_ifspec *spec);
/* After the last: reads the kernel's tables and opens what can be. Nothing that cannot be opened is an error but in strict mode. */
int pv_host_start(struct pv_engine *e);
void pv_host_stop(struct pv_engine *e); /* in a forked child too */
/* netns.c: the calling thread's namespace, which `fd` is of, is the one that the above are in. */
void pv_netns_open(struct pv_engine *e, int fd);
void pv_netns_close(struct pv_engine *e);

/* Readable when the kernel told of a change; -1: nobody asks. For fds that wait on it beside the rings'. */
int pv_host_fd(const struct pv_engine *e);
/* Reads the changes that have come, and acts on them. Never waits for the network. True when rings or interfaces changed. */
bool pv_host_read(struct pv_engine *e);
/* Entries without a ring may have one now, though nothing of the kernel's changed: pyvmad is there. */
void pv_host_again(struct pv_engine *e);
/* Routes have changed, and who sends is to ask anew. The progress thread says so when the kernel has time for questions, which it waits for without
 * the engine's lock. */
bool pv_host_routes_due(const struct pv_engine *e);
void pv_host_routes(struct pv_engine *e);
/* Has a change been read that could not be acted upon? The progress thread tries again. */
bool pv_host_due(struct pv_engine *e);
/* When a ring is to be opened that could not be because the interface was taken; PV_NEVER: none. */
int64_t pv_host_deadline(const struct pv_engine *e);
/* Legs of bonds are to be looked at anew then, or earlier. */
void pv_host_legs_at(struct pv_engine *e, int64_t when_ns);

/* ---- for the socket layer ---------------------------------------------------------------------------------------------- */

/* Is any interface of the settings the kernel's? Sockets then have legs in the kernel for all that is not steered to us. */
pv_inline bool pv_host_present(const struct pv_engine *e)
{
	return pv_unlikely(e->host != NULL);
}

/* Is this socket of the network namespace whose interfaces the engine has? True where nobody can tell. Any thread, no lock. */
bool pv_host_same_netns(const struct pv_engine *e, int fd);
/* Is the calling thread in it? Also true where there is no such namespace. Any thread, no lock. */
bool pv_host_home(const struct pv_engine *e);
/* socket(2) there, wherever the calling thread is. < 0: errno says why. Any thread, no lock. */
int pv_host_socket(const struct pv_engine *e, int family, int type, int proto);
/* The stack's interface, offloaded and the kernel's, that has this unicast address; 0: none. */
uint32_t pv_host_owner(const struct pv_engine *e, const struct pv_addr *addr);
/* Is the stack's interface the kernel's? And the kernel's number of it, 0 for one of our own. */
bool pv_host_is(const struct pv_engine *e, uint32_t iface);
uint32_t pv_host_kernel_index(const struct pv_engine *e, uint32_t iface);
/* Why an address of an interface that the settings name is not offloaded: a text that stays for ever. NULL: it is of none. */
const char *pv_host_reason(const struct pv_engine *e, const struct pv_addr *addr);
/* The same for a destination: of the interface that the kernel's route to it takes. Asks the kernel when some entry is not offloaded. */
const char *pv_host_reason_to(struct pv_engine *e, const struct pv_addr *dst);
/* The same by the kernel's number of the interface (SO_BINDTODEVICE). */
const char *pv_host_reason_of(const struct pv_engine *e, uint32_t kernel_index);
/* The kernel told a socket of its (error queue, IP_MTU) how long packets to this destination may be. */
void pv_host_pmtu(struct pv_engine *e, const struct pv_addr *dst, uint32_t mtu);

/* ---- for devinfo and doctor -------------------------------------------------------------------------------------------- */

struct pv_host_entry_info {
	char name[PV_IFNAME_MAX];
	const char *kind; /* of the ring */
	uint32_t kernel_index; /* 0: there is no such interface */
	uint32_t iface; /* 0: not offloaded */
	const char *reason; /* when it is not */
};
/* Entry `i`, from 0; false: no more. */
bool pv_host_entry(const struct pv_engine *e, uint32_t i, struct pv_host_entry_info *out);

#endif
