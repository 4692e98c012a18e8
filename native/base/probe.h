/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static probes (USDT): places that bpftrace, perf or gdb can watch in a running process by name. A probe is a no-operation in the code and
 * an ELF note that says where it is and where its arguments lie; what reads them is loaded by whoever traces. So a probe that nobody
 * watches costs that one instruction, and its arguments should be values that are at hand.
 *
 * The layout of the note is SystemTap's, version 3 (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation); no header
 * of its is needed to build. All arguments are unsigned, of their own size.
 */
#ifndef PV_BASE_PROBE_H
#define PV_BASE_PROBE_H

#include <stdint.h>

/*
 * X(name, arguments, text): every probe of the provider `pyvma`; native/doc/tracing.md is held to this list.
 * iface: an interface's number in the engine. pkt, sock: addresses that tell packets and sockets apart while they live; a packet has the
 * same one at every station. proto: 17 or 6. Ports are in host order, frame is the address of the Ethernet header.
 */
#define PV_PROBES(X)                                                                                                               \
	X(ring_in, "iface pkt frame bytes", "a frame came out of a ring")                                                          \
	X(demux, "proto sock pkt lport rport", "its socket or connection was found; rport 0: not connected")                       \
	X(queued, "proto sock pkt bytes", "payload is in the socket's receive queue")                                              \
	X(delivered, "proto sock bytes", "a receive call gave payload to the application")                                         \
	X(send, "proto sock bytes", "a send call took payload from the application")                                               \
	X(posted, "iface pkt frame bytes", "a frame was given to a ring")                                                          \
	X(completed, "iface pkt", "the ring gave a sent packet back")                                                              \
	X(drop, "reason name iface bytes sock", "a packet ended, or was refused; name: address of the counter's name as text")     \
	X(tcp_state, "sock old new lport rport", "a connection changes its state; the numbers are those of TCP_INFO")              \
	X(retransmit, "sock seq bytes", "a TCP segment is sent again")

#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(PV_NO_PROBES)

/* Size@operand, for each argument. */
#define PV_PROBE_TEXT(n) "%c[s" #n "]@%[a" #n "]"
#define PV_PROBE_ARG(n, x) [s##n] "n"(sizeof(x)), [a##n] "nor"(x)

#define PV_PROBE_EMIT(name, text, ...)                                                                                             \
	__asm__ volatile("990:	nop\n"                                                                                              \
			 "	.pushsection .note.stapsdt,\"?\",\"note\"\n"                                                            \
			 "	.balign 4\n"                                                                                            \
			 "	.4byte 992f-991f, 994f-993f, 3\n"                                                                       \
			 "991:	.asciz \"stapsdt\"\n"                                                                               \
			 "992:	.balign 4\n"                                                                                        \
			 "993:	.8byte 990b\n"                                                                                      \
			 "	.8byte _.stapsdt.base\n"                                                                                \
			 "	.8byte 0\n"                                                                                             \
			 "	.asciz \"pyvma\"\n"                                                                                     \
			 "	.asciz \"" #name "\"\n"                                                                            \
			 "	.asciz \"" text "\"\n"                                                                             \
			 "994:	.balign 4\n"                                                                                        \
			 "	.popsection\n"                                                                                          \
			 "	.ifndef _.stapsdt.base\n"                                                                               \
			 "	.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                                  \
			 "	.weak _.stapsdt.base\n"                                                                                 \
			 "	.hidden _.stapsdt.base\n"                                                                               \
			 "_.stapsdt.base: .space 1\n"                                                                              \
			 "	.size _.stapsdt.base, 1\n"                                                                              \
			 "	.popsection\n"                                                                                          \
			 "	.endif\n" ::__VA_ARGS__)

#define PV_PROBE2(name, a, b) PV_PROBE_EMIT(name, PV_PROBE_TEXT(1) " " PV_PROBE_TEXT(2), PV_PROBE_ARG(1, a), PV_PROBE_ARG(2, b))
#define PV_PROBE3(name, a, b, c)                                                                                                   \
	PV_PROBE_EMIT(name, PV_PROBE_TEXT(1) " " PV_PROBE_TEXT(2) " " PV_PROBE_TEXT(3), PV_PROBE_ARG(1, a), PV_PROBE_ARG(2, b),    \
		      PV_PROBE_ARG(3, c))
#define PV_PROBE4(name, a, b, c, d)                                                                                                \
	PV_PROBE_EMIT(name, PV_PROBE_TEXT(1) " " PV_PROBE_TEXT(2) " " PV_PROBE_TEXT(3) " " PV_PROBE_TEXT(4), PV_PROBE_ARG(1, a),   \
		      PV_PROBE_ARG(2, b), PV_PROBE_ARG(3, c), PV_PROBE_ARG(4, d))
#define PV_PROBE5(name, a, b, c, d, e)                                                                                             \
	PV_PROBE_EMIT(name, PV_PROBE_TEXT(1) " " PV_PROBE_TEXT(2) " " PV_PROBE_TEXT(3) " " PV_PROBE_TEXT(4) " " PV_PROBE_TEXT(5),  \
		      PV_PROBE_ARG(1, a), PV_PROBE_ARG(2, b), PV_PROBE_ARG(3, c), PV_PROBE_ARG(4, d), PV_PROBE_ARG(5, e))

#else

#define PV_PROBE2(name, a, b) ((void)(a), (void)(b))
#define PV_PROBE3(name, a, b, c) (PV_PROBE2(name, a, b), (void)(c))
#define PV_PROBE4(name, a, b, c, d) (PV_PROBE3(name, a, b, c), (void)(d))
#define PV_PROBE5(name, a, b, c, d, e) (PV_PROBE4(name, a, b, c, d), (void)(e))

#endif

#endif
