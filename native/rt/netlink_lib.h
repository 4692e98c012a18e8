/* SPDX-License-Identifier: BSD-3-Clause */
/* libmnl's functions, loaded at run time so that the library runs without it. */
#ifndef PV_RT_NETLINK_LIB_H
#define PV_RT_NETLINK_LIB_H

#include <libmnl/libmnl.h>

/* X(return type, name, parameters) */
#define PV_MNL_FUNCTIONS(X)                                                                                                        \
	X(struct mnl_socket *, mnl_socket_open2, (int, int))                                                                       \
	X(int, mnl_socket_bind, (struct mnl_socket *, unsigned int, pid_t))                                                        \
	X(int, mnl_socket_close, (struct mnl_socket *))                                                                            \
	X(int, mnl_socket_get_fd, (const struct mnl_socket *))                                                                     \
	X(unsigned int, mnl_socket_get_portid, (const struct mnl_socket *))                                                        \
	X(int, mnl_socket_setsockopt, (const struct mnl_socket *, int, void *, socklen_t))                                         \
	X(ssize_t, mnl_socket_sendto, (const struct mnl_socket *, const void *, size_t))                                           \
	X(ssize_t, mnl_socket_recvfrom, (const struct mnl_socket *, void *, size_t))                                               \
	X(struct nlmsghdr *, mnl_nlmsg_put_header, (void *))                                                                       \
	X(void *, mnl_nlmsg_put_extra_header, (struct nlmsghdr *, size_t))                                                         \
	X(struct nlmsghdr *, mnl_nlmsg_next, (const struct nlmsghdr *, int *))                                                     \
	X(void *, mnl_nlmsg_get_payload, (const struct nlmsghdr *))                                                                \
	X(size_t, mnl_nlmsg_get_payload_len, (const struct nlmsghdr *))                                                            \
	X(int, mnl_attr_parse, (const struct nlmsghdr *, unsigned int, mnl_attr_cb_t, void *))                                     \
	X(int, mnl_attr_parse_nested, (const struct nlattr *, mnl_attr_cb_t, void *))                                              \
	X(uint16_t, mnl_attr_get_type, (const struct nlattr *))                                                                    \
	X(uint16_t, mnl_attr_get_payload_len, (const struct nlattr *))                                                             \
	X(void *, mnl_attr_get_payload, (const struct nlattr *))                                                                   \
	X(void, mnl_attr_put, (struct nlmsghdr *, uint16_t, size_t, const void *))

struct pv_mnl {
#define PV_MNL_FIELD(type, name, parameters) type(*name) parameters;
	PV_MNL_FUNCTIONS(PV_MNL_FIELD)
#undef PV_MNL_FIELD
};

/* NULL with a text when libmnl is not there. */
const struct pv_mnl *pv_mnl_load(char *err, size_t errsize);

#endif
