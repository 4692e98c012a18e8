"""Contexts that are not ours go to the real libibverbs, every call with all its arguments.

There is no RDMA hardware here, so a library of the real one's name stands in for it and writes down what arrives.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import softnic_env

HEADER = Path("/usr/include/infiniband/verbs.h")

pytestmark = [
    pytest.mark.skipif(bool(softnic_env.reason()), reason=softnic_env.reason()),
    pytest.mark.skipif(not shutil.which("cc") or not HEADER.exists(), reason="no compiler or libibverbs-dev"),
]

# P(n) is some pointer.
CALLS = """
ibv_get_device_index(device)
ibv_get_device_guid(device)
ibv_open_device(device)
ibv_close_device(&ctx)
ibv_import_device(0)
ibv_import_pd(&ctx, 5)
ibv_unimport_pd(&pd)
ibv_import_mr(&pd, 5)
ibv_unimport_mr(&mr)
ibv_import_dm(&ctx, 5)
ibv_unimport_dm(&dm)
ibv_get_async_event(&ctx, P(2))
ibv_ack_async_event(&event)
ibv_query_device(&ctx, P(2))
ibv_query_port(&ctx, 1, P(3))
ibv_query_gid(&ctx, 1, 2, P(4))
_ibv_query_gid_ex(&ctx, 1, 2, P(4), 5, 6)
_ibv_query_gid_table(&ctx, P(2), 3, 4, 5)
ibv_query_gid_type(&ctx, 1, 2, P(4))
ibv_query_pkey(&ctx, 1, 2, P(4))
ibv_get_pkey_index(&ctx, 1, 2)
ibv_alloc_pd(&ctx)
ibv_dealloc_pd(&pd)
ibv_reg_mr(&pd, P(2), 3, 4)
ibv_reg_mr_iova(&pd, P(2), 3, 4, 5)
ibv_reg_mr_iova2(&pd, P(2), 3, 4, 5)
ibv_reg_dmabuf_mr(&pd, 2, 3, 4, 5, 6)
ibv_rereg_mr(&mr, 2, P(3), P(4), 5, 6)
ibv_dereg_mr(&mr)
ibv_create_comp_channel(&ctx)
ibv_destroy_comp_channel(&channel)
ibv_create_cq(&ctx, 2, P(3), P(4), 5)
ibv_resize_cq(&cq, 2)
ibv_destroy_cq(&cq)
ibv_get_cq_event(&channel, P(2), P(3))
ibv_ack_cq_events(&cq, 2)
ibv_create_srq(&pd, P(2))
ibv_modify_srq(&srq, P(2), 3)
ibv_query_srq(&srq, P(2))
ibv_destroy_srq(&srq)
ibv_create_qp(&pd, P(2))
ibv_modify_qp(&qp, P(2), 3)
ibv_query_qp(&qp, P(2), 3, P(4))
ibv_query_qp_data_in_order(&qp, 2, 3)
ibv_destroy_qp(&qp)
ibv_qp_to_qp_ex(&qp)
ibv_create_ah(&pd, P(2))
ibv_init_ah_from_wc(&ctx, 1, P(3), P(4), P(5))
ibv_create_ah_from_wc(&pd, P(2), P(3), 4)
ibv_destroy_ah(&ah)
ibv_attach_mcast(&qp, P(2), 3)
ibv_detach_mcast(&qp, P(2), 3)
ibv_resolve_eth_l2_from_gid(&ctx, P(2), P(3), P(4))
ibv_set_ece(&qp, P(2))
ibv_query_ece(&qp, P(2))
ibv_fork_init()
ibv_is_fork_initialized()
ibv_wc_status_str(2)
ibv_node_type_str(2)
ibv_port_state_str(2)
ibv_event_type_str(2)
"""
# Not in CALLS: the list itself, and the name, which is a member of every device.
LIST = {"ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name"}

REAL = """
#include <stdint.h>
#include <stdio.h>
static char device[1024] = { [24] = 'r', 'e', 'a', 'l', '0' };
static void *list[] = { device, NULL };
void **ibv_get_device_list(int *n) { *n = 1; return list; }
void ibv_free_device_list(void **l) { puts(l == list ? "freed" : "wrong list"); }
#define CALL(name)                                                                                     \\
	uintptr_t name(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f)       \\
	{                                                                                                  \\
		printf("%s %lx %lx %lx %lx %lx %lx\\n", #name, a, b, c, d, e, f);                                \\
		return 0x1234;                                                                                 \\
	}
"""

CLIENT = """
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#define P(n) ((void *)(uintptr_t)(0x5000 + (n)))
int ibv_query_gid_type(struct ibv_context *, uint8_t, unsigned int, unsigned int *);
int main(void)
{
	struct ibv_context ctx = { 0 };
	struct ibv_pd pd = { .context = &ctx };
	struct ibv_mr mr = { .context = &ctx };
	struct ibv_dm dm = { .context = &ctx };
	struct ibv_cq cq = { .context = &ctx };
	struct ibv_qp qp = { .context = &ctx };
	struct ibv_srq srq = { .context = &ctx };
	struct ibv_ah ah = { .context = &ctx };
	struct ibv_comp_channel channel = { .context = &ctx };
	struct ibv_async_event event = { .element.qp = &qp, .event_type = IBV_EVENT_QP_FATAL };
	int n;
	struct ibv_device **list = ibv_get_device_list(&n), *device = list[n - 1];

	printf("devices %d %s %s\\n", n, ibv_get_device_name(list[0]), ibv_get_device_name(device));
"""


def build(tmp_path: Path, *arguments: str) -> None:
    done = subprocess.run(["cc", "-w", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_foreign_contexts(fabric: str, tmp_path: Path) -> None:
    library = softnic_env.library()
    assert library is not None
    calls = [line for line in CALLS.split("\n") if line]
    called = {line.split("(")[0] for line in calls}
    exported = re.findall(r"^\t(_?ibv_\w+);", (softnic_env.ROOT / "native/softnic/softnic.map").read_text(), re.MULTILINE)
    assert called | LIST == set(exported)

    (tmp_path / "real.c").write_text(REAL + "".join(f"CALL({name})\n" for name in sorted(called)))
    prototypes, body = HEADER.read_text(), CLIENT
    for line in calls:
        name, arguments = line.rstrip(")").split("(", 1)
        # rstrip may have taken the parenthesis of a last P(n).
        arguments += ")" * (arguments.count("(") - arguments.count(")"))
        values = [f"(uintptr_t)({argument})" for argument in arguments.split(", ") if argument]
        formats = " %lx" * len(values)
        body += f'\tprintf("want {name}{formats}\\n"{"".join(", " + value for value in values)});\n'
        returns = re.search(rf"\n(void|int|ssize_t|enum [\w ]+|.*\*|__be64)\s*(?:__attribute_const )?{name}\(", prototypes)
        if returns and returns[1] == "void":
            body += f"\t{name}({arguments});\n"
        else:
            body += f'\tprintf("returned %x\\n", (unsigned int)(uintptr_t){name}({arguments}));\n'
    body += "\tibv_free_device_list(list);\n\treturn 0;\n}\n"
    (tmp_path / "client.c").write_text(body)
    build(tmp_path, "-shared", "-fPIC", "-o", "libibverbs.so.1", "real.c")
    build(tmp_path, "-o", "client", "client.c", str(library), f"-Wl,-rpath,{library.parent}")

    env = softnic_env.environment(f"{fabric}/0")
    env["LD_LIBRARY_PATH"] = str(tmp_path)
    done = subprocess.run([tmp_path / "client"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"devices 2 {softnic_env.device(fabric, 0)} real0"
    assert lines[-1] == "freed"
    at = 1
    for line in calls:
        want, got = lines[at].split(), lines[at + 1].split()
        assert want[0] == "want"
        assert got[: len(want) - 1] == want[1:], line
        at += 2
        if lines[at].startswith("returned"):
            assert lines[at] == "returned 1234", line
            at += 1
    assert at == len(lines) - 1
