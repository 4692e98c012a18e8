/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one table of settings. Structure, parsing, PYVMA_* and VMA_* variables, pyvma_config_row and docs/reference/settings.md all come
 * from it: a setting exists because it has a row here.
 *
 * X(kind, name, default, min, max, unit, alias, alias_div, help)
 * kind: BOOL, INT (with K, M, G suffixes), TEXT, LEVEL (log level by name or number), CHOICE (one of the names in the unit's column, or
 * its number from 0). min and max are for INT.
 * PV_CONFIG_LIVE names those that a live engine takes over at once (rt/tune.h).
 * alias: the VMA variable that means the same, or NULL; a positive number given by it is divided by alias_div.
 */
#ifndef PV_RT_CONFIG_TABLE_H
#define PV_RT_CONFIG_TABLE_H

#include <stdint.h>

#define PV_CONFIG_TABLE(X)                                                                                                         \
	X(TEXT, interfaces, "", 0, 0, "", NULL, 1,                                                                                 \
	  "interfaces to offload: RING:key=value,... several separated by ';'. Rings: softnic (fabric, port, mac), verbs "         \
	  "(device, port, lib), xdp (device, queues, mode auto, native or generic, rx_metadata off or auto, tx_csum stack, "       \
	  "auto, kernel or software, "                                                                                             \
	  "busy_poll in us), tap (name, the device's too; queues, "                                                                \
	  "mac), bond (device, legs verbs or xdp; verbs: lib, fabric; xdp: queues, mode). Interfaces of your own: "                \
	  "addr=ADDRESS/PREFIX "                                                                                                   \
	  "(repeatable), gw=ADDRESS (one a family), name, mtu, vlan, egress=PRIORITY:PCP or tos. The kernel's, with its "          \
	  "addresses, routes and neighbours: "                                                                                     \
	  "xdp "                                                                                                                   \
	  "without addr=, softnic and verbs with netdev=NAME, bond always. Keys of all: rx_depth, tx_depth")                       \
	X(BOOL, offload, "1", 0, 1, "", "VMA_OFFLOADED_SOCKETS", 1, "offload sockets at all; off: every socket is the kernel's")   \
	X(BOOL, decide_late, "0", 0, 1, "", NULL, 1,                                                                               \
	  "an fd that is adopted becomes the stack's although the kernel has bound it or listens by it, and sets do not start "    \
	  "the "                                                                                                                   \
	  "engine; the preload library sets it")                                                                                   \
	X(CHOICE, preset, "none", 0, 0,                                                                                            \
	  "none,latency,ultra-latency,multi_ring_latency,mcd,mcd-irq,7750,rti,29west,wombat_fh,throughput,shared", "VMA_SPEC", 1,  \
	  "settings for a purpose, those of PV_CONFIG_PRESETS; what is set by its own name stays as it is")                        \
	X(BOOL, strict, "0", 0, 1, "", NULL, 1,                                                                                    \
	  "a UDP socket that cannot be offloaded, or a ring that cannot be opened, is an error instead of a kernel socket")        \
	X(TEXT, rules_file, "", 0, 0, "", "VMA_CONFIG_FILE", 1,                                                                    \
	  "which sockets are left to the kernel: a file in the grammar of VMA's libvma.conf; empty: none")                         \
	X(TEXT, app_id, "VMA_DEFAULT_APPLICATION_ID", 0, 0, "", "VMA_APPLICATION_ID", 1,                                           \
	  "the id that the lines application-id of rules_file are for")                                                            \
	X(INT, rx_poll, "1000", -1, 100000000, "us", "VMA_RX_POLL", 10,                                                            \
	  "a blocking call polls this long before it sleeps; 0: sleeps at once; -1: never sleeps. VMA_RX_POLL counts polls: ten "  \
	  "are "                                                                                                                   \
	  "taken for a microsecond")                                                                                               \
	X(INT, kernel_poll_ratio, "100", 0, 1000000, "polls", "VMA_RX_UDP_POLL_OS_RATIO", 1,                                       \
	  "the kernel's half of a socket bound to all addresses is looked at every so many empty polls of a wait, after its "      \
	  "first "                                                                                                                 \
	  "10 us; 0: only before sleeping")                                                                                        \
	X(INT, rx_batch, "32", 1, 64, "frames", "VMA_CQ_POLL_BATCH_MAX", 1, "frames taken from a ring by one poll")                \
	X(INT, rx_depth, "1024", 16, 32768, "frames", "VMA_RX_WRE", 1, "receive queue of a ring")                                  \
	X(INT, tx_depth, "1024", 16, 32768, "frames", "VMA_TX_WRE", 1, "send queue of a ring")                                     \
	X(INT, rx_queues, "1", 1, 64, "queues", NULL, 1,                                                                           \
	  "receive queues of a verbs or softnic ring, over which the device spreads flows by a Toeplitz hash; down to a power of " \
	  "two and to what the device has")                                                                                        \
	X(INT, ring_logic_rx, "0", 0, 31, "", "VMA_RING_ALLOCATION_LOGIC_RX", 1,                                                   \
	  "by what sockets get receive queues of their own on verbs and softnic rings, as VMA numbers it: 0 nothing, 1 address, "  \
	  "10 "                                                                                                                    \
	  "socket, 11 a key that the program says (pyvma.ring.place), 20 thread, 30 core, 31 core to which the thread is bound. "  \
	  "With any but 0 also rules of pyvma.ring.steer can have queues")                                                         \
	X(INT, ring_logic_tx, "0", 0, 31, "", "VMA_RING_ALLOCATION_LOGIC_TX", 1,                                                   \
	  "the same for sending, by transmit queues beside the first, which a socket gets when it is first used for sending")      \
	X(INT, ring_limit, "0", 0, 65536, "rings", "VMA_RING_LIMIT_PER_INTERFACE", 1,                                              \
	  "receive queues beside the first ones at most, 0: what the ring has, up to 62; further keys share those with the "       \
	  "fewest. Likewise of transmit queues, up to 254; further keys send by the first")                                        \
	X(INT, ring_migration_rx, "-1", -1, 1000000, "", "VMA_RING_MIGRATION_RATIO_RX", 1,                                         \
	  "accepted for VMA's sake and noted in the log: no socket ever changes its queue by itself, as with -1")                  \
	X(INT, ring_migration_tx, "-1", -1, 1000000, "", "VMA_RING_MIGRATION_RATIO_TX", 1, "the same for sending")                 \
	X(INT, rx_bufs, "2048", 64, 4194304, "buffers", "VMA_RX_BUFS", 1, "buffers of a ring's pool at start, for receiving")      \
	X(INT, tx_bufs, "1024", 64, 4194304, "buffers", "VMA_TX_BUFS", 1, "buffers of a ring's pool at start, for sending")        \
	X(INT, buf_chunk, "2048", 0, 1048576, "buffers", NULL, 1,                                                                  \
	  "buffers added when a pool runs low, of AF_XDP to where what waits to be read is copied; 0: pools never grow")           \
	X(INT, buf_max, "262144", 64, 16777216, "buffers", NULL, 1, "buffers of a ring's pool at most")                            \
	X(BOOL, huge_pages, "1", 0, 1, "", NULL, 1, "take buffer memory from huge pages when there are any")                       \
	X(BOOL, progress, "1", 0, 1, "", NULL, 1,                                                                                  \
	  "a thread runs the stack while no call of the application does: it answers ARP, ND and ping, and makes fileno() work")   \
	X(INT, progress_interval, "10", 1, 10000, "ms", "VMA_PROGRESS_ENGINE_INTERVAL", 1,                                         \
	  "how long the application may stay away from the stack before that thread takes over; ten times as long at most after "  \
	  "a "                                                                                                                     \
	  "busy while")                                                                                                            \
	X(TEXT, asyncio_mode, "fd", 0, 0, "", NULL, 1,                                                                             \
	  "how the event loop of pyvma.asyncio waits: fd sleeps when idle, busy spins")                                            \
	X(LEVEL, log_level, "warn", 0, 0, "", "VMA_TRACELEVEL", 1, "none, error, warn, info or debug")                             \
	X(INT, log_details, "0", 0, 3, "", "VMA_LOG_DETAILS", 1,                                                                   \
	  "what a log line begins with beside its level and the process's id: 1 and 2: the thread's id; 3: the time, too")         \
	X(TEXT, log_file, "", 0, 0, "", "VMA_LOG_FILE", 1,                                                                         \
	  "append log lines to this file instead of stderr; %d is the process id")                                                 \
	X(INT, seed, "0", 0, INT64_MAX, "", NULL, 1, "seed of hash keys, ports and identifications; 0: a random one")              \
	X(INT, mtu, "0", 0, 9216, "bytes", "VMA_MTU", 1, "MTU of interfaces that name none; 0: the ring's")                        \
	X(INT, tx_inline_max, "204", 0, 4096, "bytes", "VMA_TX_MAX_INLINE", 1,                                                     \
	  "frames up to this long are copied into the send queue entry; 0: none")                                                  \
	X(BOOL, no_csum_offload, "0", 0, 1, "", NULL, 1, "compute and check every checksum in software")                           \
	X(BOOL, tso, "1", 0, 1, "", NULL, 1, "let the device cut long TCP segments, where it can and computes checksums, too")     \
	X(INT, gro_streams, "32", 0, 4096, "flows", "VMA_GRO_STREAMS_MAX", 1,                                                      \
	  "TCP flows of an engine of which segments that come together are put in together; 0: one by one")                        \
	X(CHOICE, tcp_timestamps, "os", 0, 0, "off,on,os", "VMA_TCP_TIMESTAMP_OPTION", 1,                                          \
	  "TCP's timestamps (RFC 7323), 12 bytes of each segment: offered, and used when the peer offers them, or not; os: as "    \
	  "the kernel's net.ipv4.tcp_timestamps says when the engine starts")                                                      \
	X(INT, ring_dev_mem_tx, "0", 0, 1073741824, "bytes", "VMA_RING_DEV_MEM_TX", 1,                                             \
	  "the device's own memory for frames longer than tx_inline_max, per ring of a verbs interface; 0: none")                  \
	X(BOOL, legacy_verbs, "0", 0, 1, "", NULL, 1, "use post_send and poll_cq even where the extended interface is there")      \
	X(TEXT, verbs_lib, "libibverbs.so.1", 0, 0, "", NULL, 1, "library behind verbs interfaces")                                \
	X(TEXT, sysfs_root, "/sys", 0, 0, "", NULL, 1,                                                                             \
	  "where bonds, NetVSC and the devices beneath interfaces are looked up; a test has a tree of its own")                    \
	X(TEXT, softnic_lib, "", 0, 0, "", NULL, 1,                                                                                \
	  "library behind softnic interfaces; empty: libpyvma-softnic.so beside this library")                                     \
	X(CHOICE, hw_ts_conversion, "sync", 0, 0, "off,raw,best,sync,ptp,rtc", "VMA_HW_TS_CONVERSION", 1,                          \
	  "what hardware time stamps are converted to: raw nanoseconds of the device's counter, CLOCK_REALTIME (sync), the "       \
	  "device's own disciplined clock (ptp; rtc: by the completion itself), the best that the device can; "                    \
	  "what it cannot falls back (timestamps.md)")                                                                             \
	X(INT, rcvbuf, "0", 0, 1073741824, "bytes", "VMA_RX_BYTES_MIN", 1,                                                         \
	  "floor of a socket's receive buffer, as SO_RCVBUF reports it; 0: the kernel's default alone")                            \
	X(INT, sndbuf, "0", 0, 1073741824, "bytes", NULL, 1, "floor of a socket's send buffer, as SO_SNDBUF reports it")           \
	X(INT, reass_max, "256", 1, 65536, "datagrams", NULL, 1, "datagrams in reassembly at once")                                \
	X(INT, reass_bytes, "4194304", 65536, 1073741824, "bytes", NULL, 1, "bytes held in reassembly")                            \
	X(INT, reass_timeout, "30", 1, 255, "s", NULL, 1, "a datagram whose fragments do not come is given up after this long")    \
	X(INT, neigh_max, "1024", 16, 1048576, "entries", NULL, 1, "neighbours remembered")                                        \
	X(INT, neigh_queue, "64", 1, 4096, "packets", NULL, 1, "packets waiting for one neighbour's address")                      \
	X(INT, icmp_rate, "1000", 1, 1000000, "1/s", NULL, 1, "ICMP errors sent at most")                                          \
	X(INT, port_low, "32768", 1, 65535, "", NULL, 1, "lowest port chosen for a socket that names none")                        \
	X(INT, port_high, "60999", 1, 65535, "", NULL, 1, "highest such port")                                                     \
	X(INT, port_reserve, "256", 0, 4096, "ports", NULL, 1,                                                                     \
	  "ports of the kernel that stay reserved for two seconds after a TCP connection that named none, for the next one; 0: "   \
	  "none")                                                                                                                  \
	X(TEXT, pcap_file, "", 0, 0, "", NULL, 1,                                                                                  \
	  "write every frame to this file as pcapng; %d is the process id; with several interfaces the name of each is appended")  \
	X(TEXT, control_dir, "", 0, 0, "", NULL, 1,                                                                                \
	  "directory of the socket by which `pyvma capture` reaches this process; empty: the user's runtime directory "            \
	  "(/run/pyvma, "                                                                                                          \
	  "/run/user/UID/pyvma or /tmp/pyvma-UID); none: no socket")                                                               \
	X(TEXT, daemon, "/run/pyvmad/pyvmad.sock", 0, 0, "", NULL, 1,                                                              \
	  "socket of pyvmad, which does for this process what takes privileges: TAP devices, XDP programs, redirect rules; none: " \
	  "it is not asked")                                                                                                       \
	X(BOOL, crash_reset, "0", 0, 1, "", NULL, 1,                                                                               \
	  "pyvmad sends RST to the peers of this process's TCP connections when it dies without closing them; those that were "    \
	  "accepted it finds in the file of stats_dir, which has to be in memory (tmpfs)")                                         \
	X(TEXT, stats_dir, "/dev/shm", 0, 0, "", "VMA_STATS_SHMEM_DIR", 1,                                                         \
	  "directory of the files that other processes read: statistics and flight recorder; none: there are none")                \
	X(TEXT, exit_stats, "", 0, 0, "", NULL, 1,                                                                                 \
	  "append the engine's counters to this file when it stops: a line a process; empty: nothing")                             \
	X(INT, trace_events, "4096", 0, 1048576, "events", NULL, 1,                                                                \
	  "how many of its last events the flight recorder keeps, down to a power of two; 0: none")                                \
	X(BOOL, trace_packets, "0", 0, 1, "", NULL, 1, "the flight recorder has every packet, too, at each of its stations")       \
	X(TEXT, fault, "", 0, 0, "", NULL, 1,                                                                                      \
	  "misbehave between ring and stack, by chances from 0 to 1 and a seed: rx_drop=0.01,tx_drop=0,rx_duplicate=0,"            \
	  "rx_corrupt=0,rx_truncate=0,rx_post_short=0,tx_post_short=0,reap_none=0,kick_again=0,link_flap=0,error=0,seed=1")

/*
 * X(name, settings): in the order of the choices of `preset`, from 1. The names up to wombat_fh are VMA's, for what VMA tunes there as far
 * as it has a counterpart.
 */
#define PV_CONFIG_PRESET_LATENCY                                                                                                   \
	"rx_poll=-1 asyncio_mode=busy progress_interval=100 rx_batch=8 ring_dev_mem_tx=16384 "                                     \
	"rx_depth=256 tx_depth=256 tcp_timestamps=off"
#define PV_CONFIG_PRESETS(X)                                                                                                       \
	X("latency", PV_CONFIG_PRESET_LATENCY)                                                                                     \
	X("ultra-latency", PV_CONFIG_PRESET_LATENCY " kernel_poll_ratio=0 progress=0 rx_bufs=1024 tx_bufs=512")                    \
	X("multi_ring_latency", PV_CONFIG_PRESET_LATENCY " kernel_poll_ratio=0 ring_logic_rx=20 ring_logic_tx=20")                 \
	X("mcd", "rx_poll=-1 ring_logic_rx=31 ring_logic_tx=31")                                                                   \
	X("mcd-irq", "rx_poll=0 ring_logic_rx=31 ring_logic_tx=31")                                                                \
	X("7750", "rx_poll=-1 rx_bufs=204800 tx_bufs=8192")                                                                        \
	X("rti", "rx_poll=-1")                                                                                                     \
	X("29west", "rx_poll=0 kernel_poll_ratio=100")                                                                             \
	X("wombat_fh", "rx_poll=0 kernel_poll_ratio=20")                                                                           \
	X("throughput", "rx_batch=64 rx_depth=8192 tx_depth=4096 rx_bufs=16384 tx_bufs=8192 buf_max=1048576 rcvbuf=8388608 "       \
			"sndbuf=4194304")                                                                                          \
	X("shared", "rx_poll=0 rx_bufs=512 tx_bufs=512 buf_chunk=512")

/* What may be changed in a live process; all else is read when the engine, a ring or a socket is opened. */
#define PV_CONFIG_LIVE(X)                                                                                                          \
	X(rx_poll)                                                                                                                 \
	X(kernel_poll_ratio)                                                                                                       \
	X(rx_batch)                                                                                                                \
	X(progress_interval)                                                                                                       \
	X(log_level)                                                                                                               \
	X(log_details)                                                                                                             \
	X(trace_packets)                                                                                                           \
	X(reass_timeout)                                                                                                           \
	X(icmp_rate)

#endif
