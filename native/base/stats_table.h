/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every statistic that there is: names, kinds, units, texts. The structures of counters, the schema in the statistics file
 * (native/doc/stats-abi.md), its documentation, pyvma_counter_get and whatever reads the file have them from here.
 *
 * Lists of counters: X(name, kind, unit, help), a uint64_t member each. Lists of fields: X(name, member, kind, more, help) of one
 * structure, which its layer expands with PV_STAT_FIELD; `more` is the unit, of an ENUM its names from 0 on, of a FLAG its bit.
 */
#ifndef PV_BASE_STATS_TABLE_H
#define PV_BASE_STATS_TABLE_H

#include "base/stats.h"

/* Numbers of the types in the directory, from 1 on: X(id, name, help). New ones go to the end. */
#define PV_STAT_TYPES(X)                                                                                                           \
	X(ENGINE, engine, "the process's stack and who runs it; one")                                                              \
	X(NET, net, "the network layer: what all sockets have in common; one")                                                     \
	X(UDP_TABLE, udp_table, "all UDP sockets together; one")                                                                   \
	X(TCP_TABLE, tcp_table, "all TCP connections together; one")                                                               \
	X(RING, ring, "the queues of one interface's device")                                                                      \
	X(POOL, pool, "packet buffers of one ring")                                                                                \
	X(SOCKET, socket, "a socket of the program, whether offloaded or the kernel's")                                            \
	X(UDP, udp, "an offloaded UDP socket")                                                                                     \
	X(TCP, tcp, "an offloaded TCP socket or connection")                                                                       \
	X(MEMBERSHIP, membership, "a UDP socket's membership of a multicast group")                                                \
	X(EPOLL, epoll, "a set of sockets that are waited for together: epoll, select, poll, an event loop")                       \
	X(REASON, reason, "why a socket is left to the kernel")                                                                    \
	X(LISTENER, listener, "what a listening TCP socket has waiting")                                                           \
	X(KERNEL, kernel, "what the kernel did for a socket")                                                                      \
	X(RXQ, rxq, "a receive queue beside a ring's first ones, to which sockets and rules are led")

enum pv_stat_type_id {
	PV_STAT_T_NONE,
#define PV_STAT_TYPE_ID(id, name, help) PV_STAT_T_##id,
	PV_STAT_TYPES(PV_STAT_TYPE_ID) PV_STAT_T_COUNT
};

/* ---- counters ---------------------------------------------------------------------------------------------------------- */

/* Reasons for which the network layer drops what came: of all rings here, of each in what it shows. */
#define PV_NET_RX_DROPS(X)                                                                                                         \
	X(rx_short, COUNTER, "", "dropped: shorter than its headers say")                                                          \
	X(rx_not_ours, COUNTER, "", "dropped: another MAC or IP destination")                                                      \
	X(rx_vlan, COUNTER, "", "dropped: a VLAN tag of another interface")                                                        \
	X(rx_ethertype, COUNTER, "", "dropped: neither ARP, IPv4 nor IPv6")                                                        \
	X(rx_ip_header, COUNTER, "", "dropped: malformed IPv4 or IPv6 header")                                                     \
	X(rx_ip_csum, COUNTER, "", "dropped: IPv4 header checksum")                                                                \
	X(rx_ip_src, COUNTER, "", "dropped: impossible source address")                                                            \
	X(rx_ip_options, COUNTER, "", "dropped: malformed options or extension headers")                                           \
	X(rx_proto, COUNTER, "", "dropped: no such protocol here")                                                                 \
	X(rx_icmp_bad, COUNTER, "", "dropped: malformed ICMP, ICMPv6, IGMP or MLD")                                                \
	X(rx_arp_bad, COUNTER, "", "dropped: malformed ARP")                                                                       \
	X(rx_nd_bad, COUNTER, "", "dropped: malformed neighbour discovery")                                                        \
	X(reass_bad, COUNTER, "", "dropped: fragments that overlap or cannot be")

/* Every reason for which the network layer drops or counts. */
#define PV_NET_COUNTERS(X)                                                                                                         \
	X(rx_frames, COUNTER, "", "frames from the rings")                                                                         \
	X(rx_delivered, COUNTER, "", "packets handed to UDP or TCP")                                                               \
	PV_NET_RX_DROPS(X)                                                                                                         \
	X(rx_icmp, COUNTER, "", "ICMP and ICMPv6 messages handled")                                                                \
	X(rx_icmp_error, COUNTER, "", "ICMP errors about our packets")                                                             \
	X(rx_arp, COUNTER, "", "ARP packets handled")                                                                              \
	X(rx_igmp, COUNTER, "", "IGMP and MLD messages handled")                                                                   \
	X(reass_fragments, COUNTER, "", "fragments taken into reassembly")                                                         \
	X(reass_done, COUNTER, "", "datagrams reassembled")                                                                        \
	X(reass_timeout, COUNTER, "", "datagrams given up: a fragment never came")                                                 \
	X(reass_full, COUNTER, "", "datagrams given up: reassembly memory")                                                        \
	X(tx_packets, COUNTER, "", "packets posted to rings")                                                                      \
	X(tx_fragments, COUNTER, "", "fragments among them")                                                                       \
	X(tx_too_big, COUNTER, "", "refused: longer than the path MTU and DF set")                                                 \
	X(tx_ring_full, COUNTER, "", "refused: the ring took no more")                                                             \
	X(tx_no_buf, COUNTER, "", "refused: the pool is empty")                                                                    \
	X(tx_no_neigh, COUNTER, "", "dropped: the neighbour did not answer")                                                       \
	X(tx_paced, COUNTER, "", "frames that waited for their sender's rate")                                                     \
	X(tx_pace_dropped, COUNTER, "", "dropped: frames that waited so when their interface went")                                \
	X(tx_neigh_queue, COUNTER, "", "dropped: too many packets wait on one neighbour")                                          \
	X(tx_arp, COUNTER, "", "ARP packets sent")                                                                                 \
	X(tx_nd, COUNTER, "", "neighbour solicitations and advertisements sent")                                                   \
	X(tx_stamps, COUNTER, "", "stamps of sent packets told to sockets")                                                        \
	X(tx_stamps_lost, COUNTER, "", "stamps lost: receive buffer full, or no packet for a copy of what was sent")               \
	X(tx_icmp, COUNTER, "", "ICMP and ICMPv6 messages sent")                                                                   \
	X(tx_icmp_limited, COUNTER, "", "ICMP errors not sent: rate limit")                                                        \
	X(tx_igmp, COUNTER, "", "IGMP and MLD reports sent")

/* Of each UDP socket, and of all. */
#define PV_UDP_COUNTERS(X)                                                                                                         \
	X(rx_datagrams, COUNTER, "", "datagrams queued to sockets")                                                                \
	X(rx_bytes, COUNTER, "bytes", "payload bytes queued")                                                                      \
	X(rx_bad_csum, COUNTER, "", "dropped: checksum")                                                                           \
	X(rx_short, COUNTER, "", "dropped: length field and packet disagree")                                                      \
	X(rx_no_port, COUNTER, "", "dropped: nobody bound to the port")                                                            \
	X(rx_filtered, COUNTER, "", "dropped: no member of the group or source blocked")                                           \
	X(rx_queue_full, COUNTER, "", "dropped: the socket's receive buffer is full")                                              \
	X(rx_no_buf, COUNTER, "", "dropped: the pool had no packet for a copy")                                                    \
	X(tx_datagrams, COUNTER, "", "datagrams sent")                                                                             \
	X(tx_bytes, COUNTER, "bytes", "payload bytes sent")                                                                        \
	X(tx_errors, COUNTER, "", "sends refused by a lower layer")

#define PV_TCP_COUNTERS(X)                                                                                                         \
	X(rx_segments, COUNTER, "", "segments taken in")                                                                           \
	X(rx_bytes, COUNTER, "bytes", "payload bytes queued in order")                                                             \
	X(rx_predicted, COUNTER, "", "segments that took the predicted path")                                                      \
	X(rx_merged, COUNTER, "", "segments of those that were put in together with the one before (gro_streams)")                 \
	X(rx_bad_csum, COUNTER, "", "dropped: checksum")                                                                           \
	X(rx_malformed, COUNTER, "", "dropped: header or options")                                                                 \
	X(rx_no_socket, COUNTER, "", "dropped: nobody there; reset sent")                                                          \
	X(rx_out_of_window, COUNTER, "", "dropped: outside the window; acknowledged")                                              \
	X(rx_paws, COUNTER, "", "dropped: timestamp too old (PAWS)")                                                               \
	X(rx_far, COUNTER, "", "dropped: from further away than IP_MINTTL or IPV6_MINHOPCOUNT lets (RFC 5082)")                    \
	X(rx_old_ack, COUNTER, "", "dropped: acknowledges what never was sent, or long ago")                                       \
	X(rx_bad_flags, COUNTER, "", "dropped: flags that make no sense in that state")                                            \
	X(rx_duplicate, COUNTER, "", "payload that was there already")                                                             \
	X(rx_out_of_order, COUNTER, "", "segments queued out of order")                                                            \
	X(rx_ooo_dropped, COUNTER, "", "dropped: no memory for out-of-order data")                                                 \
	X(rx_no_room, COUNTER, "", "dropped: receive buffer full")                                                                 \
	X(rx_resets, COUNTER, "", "valid resets")                                                                                  \
	X(rx_challenge, COUNTER, "", "challenge acknowledgements provoked (RFC 5961)")                                             \
	X(tx_segments, COUNTER, "", "segments sent")                                                                               \
	X(tx_bytes, COUNTER, "bytes", "payload bytes sent for the first time")                                                     \
	X(tx_retransmits, COUNTER, "", "segments sent again")                                                                      \
	X(tx_acks, COUNTER, "", "segments without payload")                                                                        \
	X(tx_resets, COUNTER, "", "resets sent")                                                                                   \
	X(tx_probes, COUNTER, "", "window and keepalive probes")                                                                   \
	X(tx_no_buf, COUNTER, "", "refused: the pool is empty")                                                                    \
	X(tx_errors, COUNTER, "", "refused by a lower layer")                                                                      \
	X(opened_active, COUNTER, "", "connections asked for")                                                                     \
	X(opened_passive, COUNTER, "", "connections accepted by listeners")                                                        \
	X(open_failed, COUNTER, "", "connections that never were established")                                                     \
	X(syn_overflow, COUNTER, "", "SYNs that found the queue full")                                                             \
	X(accept_overflow, COUNTER, "", "connections that found the accept queue full")                                            \
	X(cookies_sent, COUNTER, "", "SYN cookies sent")                                                                           \
	X(cookies_ok, COUNTER, "", "SYN cookies that came back")                                                                   \
	X(cookies_bad, COUNTER, "", "acknowledgements that were no cookie")                                                        \
	X(rto, COUNTER, "", "retransmission timeouts")                                                                             \
	X(rto_spurious, COUNTER, "", "timeouts found needless (F-RTO)")                                                            \
	X(tlp, COUNTER, "", "tail loss probes")                                                                                    \
	X(recoveries, COUNTER, "", "fast recoveries")                                                                              \
	X(undone, COUNTER, "", "recoveries undone (D-SACK, timestamps)")                                                           \
	X(dsacks, COUNTER, "", "duplicate SACKs received")                                                                         \
	X(delayed_acks, COUNTER, "", "acknowledgements that the timer sent")                                                       \
	X(time_waits, COUNTER, "", "connections that went through TIME_WAIT")                                                      \
	X(time_wait_reused, COUNTER, "", "TIME_WAITs ended by a new SYN (RFC 6191)")                                               \
	X(aborted, COUNTER, "", "connections given up: timeouts, errors, resets of ours")                                          \
	X(handed_back, COUNTER, "", "connections that became the kernel's, alive")                                                 \
	X(rx_handed_back, COUNTER, "", "dropped: on its way when its connection became the kernel's")

#define PV_RING_COUNTERS(X)                                                                                                        \
	X(rx_packets, COUNTER, "", "frames received")                                                                              \
	X(rx_bytes, COUNTER, "bytes", "bytes of them")                                                                             \
	X(tx_packets, COUNTER, "", "frames sent")                                                                                  \
	X(tx_bytes, COUNTER, "bytes", "bytes of them")                                                                             \
	X(rx_errors, COUNTER, "", "completions with an error, oversized or truncated frames")                                      \
	X(rx_no_buf, COUNTER, "", "frames that found no posted buffer, where the device tells")                                    \
	X(tx_errors, COUNTER, "", "completions with an error: the frame did not leave")                                            \
	X(tx_full, COUNTER, "", "posts that took fewer frames than were offered")                                                  \
	X(doorbells, COUNTER, "", "doorbells rung")                                                                                \
	X(interrupts_asked, COUNTER, "", "completion events asked for: with each of them the device may interrupt once")           \
	X(interrupts, COUNTER, "", "completion events received")                                                                   \
	X(tso_packets, COUNTER, "", "segments that the device cut, each counted once in tx_packets")                               \
	X(dm_alloc, GAUGE, "bytes", "on-device memory that the ring has")                                                          \
	X(dm_packets, COUNTER, "", "frames sent out of it")                                                                        \
	X(dm_bytes, COUNTER, "bytes", "bytes of them")                                                                             \
	X(dm_oob, COUNTER, "", "frames that found it full and went from the host's memory")                                        \
	X(moves, COUNTER, "", "times that traffic went over to another leg of the bond")                                           \
	X(plug_outs, COUNTER, "", "legs of the bond that went away")                                                               \
	X(tx_moved, COUNTER, "", "frames that may not have left by a leg that went away, sent again by another")                   \
	X(tx_lost, COUNTER, "", "and those that are not sent again: whatever is not TCP")                                          \
	X(rx_backup, COUNTER, "", "frames that came by a leg that is not active, and were dropped")                                \
	X(rules_refused, COUNTER, "", "flow rules that a leg of the bond refused")                                                 \
	X(rx_meta_stamps, COUNTER, "", "frames whose time of coming an XDP driver told")                                           \
	X(rx_meta_hashes, COUNTER, "", "frames of which it told the hash")                                                         \
	X(rx_meta_vlans, COUNTER, "", "frames whose VLAN tag it had taken off")

#define PV_COUNTER_FIELD(name, kind, unit, help) uint64_t name;
#define PV_COUNTER_NAME(name, kind, unit, help) #name,

/* ---- fields ------------------------------------------------------------------------------------------------------------ */

/* struct pv_pool */
#define PV_STATS_POOL(X)                                                                                                           \
	X(total, total, GAUGE, "", "buffers that there are")                                                                       \
	X(free, nfree, GAUGE, "", "of them free")                                                                                  \
	X(low_water, low_water, GAUGE, "", "the fewest that ever were free")                                                       \
	X(exhausted, exhausted, COUNTER, "", "buffers asked for when none was free")                                               \
	X(grown, grown, COUNTER, "", "times that buffers were added")                                                              \
	X(stored, stored, COUNTER, "", "packets copied to wait elsewhere until they are read, so that the ring has its buffers")

/* struct pv_ring_stat, beside PV_RING_COUNTERS and PV_NET_RX_DROPS */
#define PV_STATS_RING(X)                                                                                                           \
	X(interface, ifname, TEXT, "", "name of the interface")                                                                    \
	X(name, name, TEXT, "", "kind and device of the ring")                                                                     \
	X(mode, mode, TEXT, "", "which of the ring's ways is in force")                                                            \
	X(mac, mac, MAC, "", "address of the interface")                                                                           \
	X(index, index, ID, "", "the stack's number of the interface")                                                             \
	X(link_up, link_up, FLAG, 1, "the device has a link and works")                                                            \
	X(mtu, mtu, GAUGE, "bytes", "longest IP packet")                                                                           \
	X(rx_depth, rx_depth, GAUGE, "", "entries of the receive queue")                                                           \
	X(tx_depth, tx_depth, GAUGE, "", "entries of the send queue")                                                              \
	X(queues, queues, GAUGE, "", "receive queues")                                                                             \
	X(tx_queues, tx_queues, GAUGE, "", "send queues beside the first, of paced sockets and of keys (ring_logic_tx)")           \
	X(rx_drained_max, rx_drained_max, MAX, "", "most frames that one poll of the completion queue found")                      \
	X(moderation_frames, moderation_frames, GAUGE, "",                                                                         \
	  "frames for which the device holds an interrupt back; 0: none, or not known")                                            \
	X(moderation_us, moderation_us, GAUGE, "us", "how long it does so for them; 0: not at all, or not known")                  \
	X(stamps, stamps, ENUM, "off,raw,best,sync,ptp,rtc",                                                                       \
	  "where time stamps of the device come from, as hw_ts_conversion names it; off: none, or nobody asked")                   \
	X(retransmits, retransmits, COUNTER, "", "segments of TCP connections sent again by it")                                   \
	X(dm_size, dm_size, GAUGE, "bytes", "on-device memory that the device has")                                                \
	X(pacing_min, pacing_min_kbps, GAUGE, "kbit/s", "slowest rate that the device holds a queue to; 0: none")                  \
	X(pacing_max, pacing_max_kbps, GAUGE, "kbit/s", "fastest such rate")                                                       \
	X(pool, pool, LINK, "", "where its buffers come from")                                                                     \
	X(master, master, LINK, "", "the bond's ring whose leg it is")                                                             \
	X(active, active, FLAG, 1, "a leg that is sent by")                                                                        \
	X(vf_plugouts, vf_plugouts, COUNTER, "", "times that the VF went away and this TAP device took its traffic")               \
	X(rx_buffers, rx_buffers, GAUGE, "", "buffers that a TAP device is read into")                                             \
	X(tap_fd, tap_fd, ID, "", "its file descriptor; 0: no TAP device")                                                         \
	X(tap_device, tap_device, TEXT, "", "its name")

/* struct pv_rxq_stat */
#define PV_STATS_RXQ(X)                                                                                                            \
	X(ring, ring, LINK, "", "whose queue it is")                                                                               \
	X(number, number, ID, "", "the queue's number beside the first ones, from 1")                                              \
	X(queue, queue, ID, "", "its number among all of the ring's, which SO_INCOMING_CPU tells")                                 \
	X(packets, packets, COUNTER, "", "frames received by it")                                                                  \
	X(bytes, bytes, COUNTER, "bytes", "bytes of them")                                                                         \
	X(depth, depth, GAUGE, "", "entries of it")                                                                                \
	X(buffers, buffers, GAUGE, "", "buffers that the device has of it; 0: what comes now is lost")                             \
	X(rules, rules, GAUGE, "", "rules that lead to it")

/* struct pv_engine_stat (rt/stats_types.h) */
#define PV_STATS_ENGINE(X)                                                                                                         \
	X(started, started_ns, TIME, "ns", "when the engine was started")                                                          \
	X(polls, polls, COUNTER, "", "turns of the stack")                                                                         \
	X(sleeps, sleeps, COUNTER, "", "times that a thread slept until a ring, a deadline or another thread woke it")             \
	X(wakeups, wakeups, COUNTER, "", "sleeping threads that were woken by another")                                            \
	X(polling, polling_ns, COUNTER, "ns", "time of threads that polled while they waited")                                     \
	X(spin, spin_ns, SIGNED, "ns", "how long a blocking call polls before it sleeps; the greatest number: for ever")           \
	X(kernel_ratio, kernel_ratio, GAUGE, "", "empty polls between looks at the kernel's half of a socket; 0: none")            \
	X(lent, lent, GAUGE, "", "buffers that the application reads in place")                                                    \
	X(interfaces, nports, GAUGE, "", "interfaces whose ring is open")                                                          \
	X(progress_thread, progress_tid, ID, "", "thread that runs the stack while the application does not; 0: none")             \
	X(page_bytes, huge_bytes, GAUGE, "bytes", "buffer memory in huge pages")

/* struct pv_sock_stat (rt/stats_types.h) */
#define PV_STATS_SOCKET(X)                                                                                                         \
	X(fd, fd, ID, "", "number of the file descriptor; -1: nobody asked for one yet")                                           \
	X(family, family, ENUM, "unspecified,unix,inet,3,4,5,6,7,8,9,inet6", "address family")                                     \
	X(type, type, ENUM, "0,stream,datagram,raw,rdm,seqpacket", "kind of socket")                                               \
	X(protocol, proto, ID, "", "IP protocol; 0: the usual one")                                                                \
	X(state, state, ENUM, "undecided,offloaded,kernel,lost", "who has the socket; lost: the engine was stopped under it")      \
	X(transport, transport, LINK, "", "its udp or tcp")                                                                        \
	X(reason, reason, LINK, "", "why it is the kernel's")                                                                      \
	X(created, created_ns, TIME, "ns", "when it was made")                                                                     \
	X(nonblocking, nonblock, FLAG, 1, "calls do not wait")                                                                     \
	X(timestamps, tsflags, ID, "", "SO_TIMESTAMPING flags; 0: none")                                                           \
	X(stamps, stamps, ENUM, "none,software,device,both",                                                                       \
	  "who stamps what it receives, as it asks; what the device can is the ring's")                                            \
	X(rx_thread, rx_thread, ID, "", "thread that received last; 0: none did")                                                  \
	X(tx_thread, tx_thread, ID, "", "thread that sent last; 0: none did")                                                      \
	X(rx_eagain, rx.eagain, COUNTER, "", "receiving calls that ended with EAGAIN: nothing was there, or came in time")         \
	X(tx_eagain, tx.eagain, COUNTER, "", "sending calls that ended with EAGAIN: no room")                                      \
	X(rx_errors, rx.errors, COUNTER, "", "receiving calls that the stack ended with another error")                            \
	X(tx_errors, tx.errors, COUNTER, "", "sending calls that the stack ended with another error")                              \
	X(poll_hits, hits, COUNTER, "", "waits that ended without a sleep")                                                        \
	X(poll_misses, misses, COUNTER, "", "waits that slept")                                                                    \
	X(sleeps, sleeps, COUNTER, "", "sleeps in them")                                                                           \
	X(kernel, kernel, LINK, "", "what the kernel did for it; 0: nothing so far")

/* struct pv_kernel_stat (rt/stats_types.h) */
#define PV_STATS_KERNEL(X)                                                                                                         \
	X(rx_packets, rx, COUNTER, "", "datagrams, or reads of a stream, by the kernel")                                           \
	X(rx_bytes, rx_bytes, COUNTER, "bytes", "bytes of them")                                                                   \
	X(tx_packets, tx, COUNTER, "", "datagrams, or writes to a stream, by the kernel")                                          \
	X(tx_bytes, tx_bytes, COUNTER, "bytes", "bytes of them")                                                                   \
	X(rx_errors, rx_failed.errors, COUNTER, "", "receiving calls that the kernel refused")                                     \
	X(tx_errors, tx_failed.errors, COUNTER, "", "sending calls that the kernel refused")                                       \
	X(rx_eagain, rx_failed.eagain, COUNTER, "", "receiving calls for which the kernel had nothing")                            \
	X(tx_eagain, tx_failed.eagain, COUNTER, "", "sending calls for which the kernel had no room")

#define PV_STATS_REASON(X) X(text, text, TEXT, "", "in words")

/* struct pv_udp, beside PV_UDP_COUNTERS */
#define PV_STATS_UDP(X)                                                                                                            \
	X(local_addr, laddr, ADDR, "", "address that it is bound to")                                                              \
	X(local_port, lport, PORT, "", "its port; 0: not bound")                                                                   \
	X(remote_addr, raddr, ADDR, "", "peer that it is connected to")                                                            \
	X(remote_port, rport, PORT, "", "the peer's port; 0: not connected")                                                       \
	X(queued, rxq.count, GAUGE, "", "datagrams that wait to be read")                                                          \
	X(rx_memory, rx_bytes, GAUGE, "bytes", "what they are charged with")                                                       \
	X(rx_memory_max, rx_peak, MAX, "bytes", "the most they were charged with")                                                 \
	X(rcvbuf, rx_limit, GAUGE, "bytes", "how much that may be: SO_RCVBUF")                                                     \
	X(sndbuf, opts.sndbuf, GAUGE, "bytes", "SO_SNDBUF")                                                                        \
	X(pacing_rate, pacing_rate, GAUGE, "bytes/s", "rate that it is held to; 0: none")                                          \
	X(interface, path_iface, ID, "", "the stack's number of the interface by which its peer is reached; 0: not connected")

/* struct pv_tcp */
#define PV_STATS_TCP(X)                                                                                                            \
	X(state, state, ENUM,                                                                                                      \
	  "0,ESTABLISHED,SYN-SENT,SYN-RECEIVED,FIN-WAIT-1,FIN-WAIT-2,TIME-WAIT,CLOSED,CLOSE-WAIT,LAST-ACK,LISTEN,CLOSING",         \
	  "RFC 9293 3.3.2")                                                                                                        \
	X(local_addr, laddr, ADDR, "", "own address")                                                                              \
	X(local_port, lport, PORT, "", "own port")                                                                                 \
	X(remote_addr, raddr, ADDR, "", "the peer's address")                                                                      \
	X(remote_port, rport, PORT, "", "the peer's port")                                                                         \
	X(opened, opened_ns, TIME, "ns", "when its first SYN went or came")                                                        \
	X(congestion, cc_kind, ENUM, "none,cubic,reno", "congestion control")                                                      \
	X(ca_state, ca, ENUM, "open,disorder,cwr,recovery,loss", "what congestion control thinks of the path")                     \
	X(mss, mss, GAUGE, "bytes", "payload of a full segment")                                                                   \
	X(pmtu, pmtu, GAUGE, "bytes", "path MTU")                                                                                  \
	X(cwnd, cwnd, GAUGE, "", "congestion window, segments")                                                                    \
	X(ssthresh, ssthresh, GAUGE, "", "slow start threshold, segments")                                                         \
	X(in_flight, in_flight, GAUGE, "", "segments sent and not acknowledged")                                                   \
	X(sacked, sacked, GAUGE, "", "of them SACKed")                                                                             \
	X(lost, lost, GAUGE, "", "of them taken for lost")                                                                         \
	X(retransmitted, retrans, GAUGE, "", "of them sent again")                                                                 \
	X(reordering, reordering, GAUGE, "", "how far apart segments may come in the wrong order, segments")                       \
	X(srtt, srtt_ns, GAUGE, "ns", "smoothed round trip time (RFC 6298); 0: not measured")                                      \
	X(rttvar, rttvar_ns, GAUGE, "ns", "four times its deviation, floor included")                                              \
	X(min_rtt, min_rtt_ns, GAUGE, "ns", "least round trip time; the greatest number: not measured")                            \
	X(rto, rto_ns, GAUGE, "ns", "retransmission timeout, to be shifted left by backoff")                                       \
	X(backoff, backoff, GAUGE, "", "timeouts in a row, as the timeout is doubled for each")                                    \
	X(snd_wnd, snd_wnd, GAUGE, "bytes", "window that the peer offers")                                                         \
	X(snd_una, snd_una, ID, "", "first sequence number that is not acknowledged")                                              \
	X(snd_nxt, snd_nxt, ID, "", "next to be sent")                                                                             \
	X(rcv_nxt, rcv_nxt, ID, "", "next that is expected")                                                                       \
	X(rcv_adv, rcv_adv, ID, "", "end of the window that was offered: less rcv_nxt, modulo 2^32, it is the window in bytes")    \
	X(rx_queue, rcvq_bytes, GAUGE, "bytes", "received and not read")                                                           \
	X(rx_out_of_order, ooo_bytes, GAUGE, "bytes", "received behind a gap")                                                     \
	X(rx_memory, rcv_mem, GAUGE, "bytes", "what both are charged with")                                                        \
	X(rcvbuf, opts.rcvbuf, GAUGE, "bytes", "how much that may be: SO_RCVBUF")                                                  \
	X(tx_queue, sndq_bytes, GAUGE, "bytes", "written and not acknowledged")                                                    \
	X(tx_memory, snd_mem, GAUGE, "bytes", "what it is charged with")                                                           \
	X(sndbuf, opts.sndbuf, GAUGE, "bytes", "how much that may be: SO_SNDBUF")                                                  \
	X(rx_segments, segs_in, COUNTER, "", "segments received, modulo 2^32 as in TCP_INFO")                                      \
	X(rx_data_segments, data_segs_in, COUNTER, "", "of them with payload, modulo 2^32")                                        \
	X(rx_bytes, bytes_received, COUNTER, "bytes", "payload queued in order")                                                   \
	X(rx_reordered, rcv_ooopack, COUNTER, "", "segments that came out of order, modulo 2^32")                                  \
	X(tx_segments, segs_out, COUNTER, "", "segments sent, modulo 2^32")                                                        \
	X(tx_data_segments, data_segs_out, COUNTER, "", "of them with payload, modulo 2^32")                                       \
	X(tx_bytes, bytes_sent, COUNTER, "bytes", "payload sent, repetitions included")                                            \
	X(acked_bytes, bytes_acked, COUNTER, "bytes", "payload that the peer acknowledged")                                        \
	X(retransmits, total_retrans, COUNTER, "", "segments sent again, modulo 2^32")                                             \
	X(retransmitted_bytes, bytes_retrans, COUNTER, "bytes", "payload of them")                                                 \
	X(delivered, delivered, COUNTER, "", "segments delivered, modulo 2^32")                                                    \
	X(delivered_ce, delivered_ce, COUNTER, "", "of them with a mark of congestion, modulo 2^32")                               \
	X(dsacks, dsack_dups, COUNTER, "", "duplicate SACKs received, modulo 2^32")                                                \
	X(reorders, reord_seen, COUNTER, "", "times that the peer was found to receive out of order, modulo 2^32")                 \
	X(last_rx, last_data_rcvd_ns, TIME, "ns", "when payload came last")                                                        \
	X(last_tx, last_data_sent_ns, TIME, "ns", "when payload went last")                                                        \
	X(pacing_rate, pacing_rate, GAUGE, "bytes/s", "rate in force; the greatest number: not paced")                             \
	X(nodelay, opts.nodelay, FLAG, 1, "TCP_NODELAY")                                                                           \
	X(cork, opts.cork, FLAG, 1, "TCP_CORK")                                                                                    \
	X(keepalive, opts.keepalive, FLAG, 1, "SO_KEEPALIVE")                                                                      \
	X(sack, flags, FLAG, PV_TF_SACK, "both ends know SACK")                                                                    \
	X(timestamps, flags, FLAG, PV_TF_TS, "both ends know timestamps")                                                          \
	X(ecn, flags, FLAG, PV_TF_ECN, "both ends know ECN")                                                                       \
	X(orphan, flags, FLAG, PV_TF_ORPHAN, "the application has closed it")                                                      \
	X(interface, path.iface, ID, "", "the stack's number of the interface by which it sends; 0: none")                         \
	X(listener, listen, LINK, "", "what it has waiting, of one in LISTEN")                                                     \
	X(parent, parent, LINK, "", "the listener's tcp, of a connection that was not accepted yet")

/* struct pv_tcp_listen */
#define PV_STATS_LISTENER(X)                                                                                                       \
	X(accept_queue, naccept, GAUGE, "", "connections that wait to be accepted")                                                \
	X(backlog, backlog, GAUGE, "", "how many may")                                                                             \
	X(syn_queue, nsyn, GAUGE, "", "connections half open")

/* struct pv_udp_member */
#define PV_STATS_MEMBERSHIP(X)                                                                                                     \
	X(group, group, ADDR, "", "the group")                                                                                     \
	X(interface, iface, ID, "", "the stack's number of the interface, rings are numbered likewise")                            \
	X(mode, mode, ENUM, "exclude,include", "which sources are wanted")                                                         \
	X(sources, n, GAUGE, "", "sources named")                                                                                  \
	X(udp, sock, LINK, "", "whose membership it is")

/* struct pv_epoll_stat (rt/stats_types.h) */
#define PV_STATS_EPOLL(X)                                                                                                          \
	X(kind, kind, ENUM, "epoll,poll,select,loop", "by what the program waits; loop: an event loop")                            \
	X(fd, fd, ID, "", "the kernel's set for what is the kernel's")                                                             \
	X(sockets, sockets, GAUGE, "", "entries that are sockets of ours")                                                         \
	X(kernel_fds, kernel_fds, GAUGE, "", "entries in the kernel's set")                                                        \
	X(waits, waits, COUNTER, "", "calls that waited or asked")                                                                 \
	X(events_offloaded, events_ours, COUNTER, "", "events told of offloaded sockets")                                          \
	X(events_kernel, events_kernel, COUNTER, "", "events told by the kernel's set")                                            \
	X(poll_hits, hits, COUNTER, "", "calls that found something at once or while polling")                                     \
	X(poll_misses, misses, COUNTER, "", "calls that slept")                                                                    \
	X(polling, polling_ns, COUNTER, "ns", "time of them in which they polled")                                                 \
	X(timeouts, timeouts, COUNTER, "", "calls whose time was over")                                                            \
	X(errors, errors, COUNTER, "", "calls that failed")                                                                        \
	X(thread, thread, ID, "", "thread that called last")

#endif
