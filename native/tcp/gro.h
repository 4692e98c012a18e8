/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a batch of frames brought of one flow, gathered so that one pass of TCP input does for all: segments that follow each other
 * without a gap and say the same otherwise, or acknowledgements without data of which each tells more than the one before. No longer
 * than until the end of the batch. Each packet stays what it was, with its own headers: where the run as a whole is not what a connection
 * expects next, its segments go in one by one, as if they had never been together.
 */
#ifndef PV_TCP_GRO_H
#define PV_TCP_GRO_H

#include "tcp/tcp_int.h"

struct pv_tcp_run {
	struct pv_list open; /* of the table's head, first opened first; while segs is not 0 */
	struct pv_tcp_in in; /* the first packet, which the others hang on by `next`; len: of all, ack and PSH: of the last */
	struct pv_pkt *tail;
	pv_seq end; /* the number that follows */
	uint32_t segs; /* 0: there is no run */
	uint32_t seg_len; /* of each but the last, which may be shorter; 0: acknowledgements */
	uint32_t last_len; /* of the last */
	uint32_t seg_mem, mem; /* bytes of a buffer, of all */
	pv_seq ack; /* that of the first */
	uint8_t hlen; /* of the TCP header */
};

int pv_tcp_gro_open(struct pv_tcp_table *t); /* -ENOMEM */
void pv_tcp_gro_close(struct pv_tcp_table *t);
/* True: the packet follows an open run of its flow and was put to it; data/len are its payload now. False: what was gathered of its flow has
 * gone in ahead of it. `h` is of its header, which is all there, and right by its checksum. */
bool pv_tcp_run_take(struct pv_tcp_table *t, struct pv_pkt *pkt, const struct pv_wire_tcp *h, int64_t now_ns);
/* After pv_tcp_run_take said no: true when others may follow this one, and it waits for them. */
bool pv_tcp_run_start(struct pv_tcp_table *t, const struct pv_tcp_in *in, uint32_t hlen);

void pv_tcp_run_input(struct pv_tcp_table *t, struct pv_tcp_run *run); /* input.c: takes the packets */
/* rcvq.c: is there room for all of it, without making any; then, of a run that has it and is what comes next: takes the packets. */
bool pv_tcp_run_fits(const struct pv_tcp *c, const struct pv_tcp_run *run);
void pv_tcp_run_in_order(struct pv_tcp *c, const struct pv_tcp_run *run);
void pv_rcv_run_event(struct pv_tcp *c, const struct pv_tcp_run *run); /* delack.c: pv_rcv_data_event of each */

#endif
