"""The device in the eyes of rdma-core's own tools, by each way of putting the library before libibverbs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import softnic_env

pytestmark = pytest.mark.skipif(bool(softnic_env.reason()), reason=softnic_env.reason())


def run(*command: str, env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("ibv_devinfo"), reason="no ibv_devinfo: Debian's ibverbs-utils")
def test_devinfo(fabric: str) -> None:
    env = softnic_env.environment(f"{fabric}/4,mac=02:aa:bb:cc:dd:ee,mtu=4000", preload=True)
    text = run("ibv_devinfo", "-v", "-d", softnic_env.device(fabric, 4), env=env)
    values = dict(line.strip().split(":", 1) for line in text.splitlines() if ":" in line)
    values = {name.strip(): value.strip() for name, value in values.items()}
    assert values["hca_id"] == softnic_env.device(fabric, 4)
    assert values["transport"] == "InfiniBand (0)"
    assert values["node_guid"] == values["sys_image_guid"] == "00aa:bbff:fecc:ddee"
    assert values["phys_port_cnt"] == "1"
    assert values["state"] == "PORT_ACTIVE (4)"
    assert values["active_mtu"] == "2048 (4)"
    assert values["max_msg_sz"] == hex(4018)
    assert values["link_layer"] == "Ethernet"
    assert values["hca_core_clock"] == "1000000kHZ"
    assert values["GID[  0]"] == "fe80:0000:0000:0000:00aa:bbff:fecc:ddee, RoCE v1"
    assert values["max_tso"] == "262144"
    assert values["qp_rate_limit_min"] == "1kbps"
    assert values["qp_rate_limit_max"] == "100000000kbps"
    assert values["maximum available device memory"] == "262144Bytes"
    assert "C-VLAN stripping offload" in text
    assert "RAW_IP_CSUM" in text
    assert "MANAGED_FLOW_STEERING" in text


@pytest.mark.skipif(not shutil.which("ibv_devinfo"), reason="no ibv_devinfo: Debian's ibverbs-utils")
@pytest.mark.parametrize("way", ["device", "process"])
def test_devinfo_of_a_device_that_lacks_things(fabric: str, way: str) -> None:
    lacks = "tso", "dm", "pacing", "vlan-strip", "csum", "timestamps", "flow"
    env = softnic_env.environment(f"{fabric}/4" + (",off=" + "+".join(lacks) if way == "device" else ""), preload=True)
    if way == "process":
        env["PYVMA_SOFTNIC_OFF"] = ",".join(lacks)
    text = run("ibv_devinfo", "-v", "-d", softnic_env.device(fabric, 4), env=env)
    values = {name.strip(): value.strip() for name, value in (line.split(":", 1) for line in text.splitlines() if ":" in line)}
    assert values["max_tso"] == "0"
    assert "kbps" not in text.replace("0kbps", "")
    assert "hca_core_clock" not in values
    for word in ("device memory", "C-VLAN", "RAW_IP_CSUM", "MANAGED_FLOW_STEERING"):
        assert word not in text


@pytest.mark.skipif(not shutil.which("ibv_devices"), reason="no ibv_devices: Debian's ibverbs-utils")
def test_every_port_is_a_device(fabric: str) -> None:
    env = softnic_env.environment(f"{fabric}/0", f"{fabric}/1", preload=True)
    rows = [line.split() for line in run("ibv_devices", env=env).splitlines()]
    assert [softnic_env.device(fabric, 0), "00534efffe000000"] in rows
    assert [softnic_env.device(fabric, 1), "00534efffe000001"] in rows


def test_bad_specification_is_told(fabric: str) -> None:
    env = softnic_env.environment(f"{fabric}/99", f"{fabric}/1", preload=True)
    code = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).ibv_get_device_list(ctypes.byref(n)); print(n.value)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert f'bad or contradicting entry "{fabric}/99"' in done.stderr
    assert int(done.stdout) >= 1


PYVERBS = """
import ctypes, os, sys
if sys.argv[1] == "ctypes":
    ctypes.CDLL(os.environ["PYVMA_SOFTNIC_LIB"], ctypes.RTLD_GLOBAL)
import pyverbs.device as d
names = [device.name.decode() for device in d.get_device_list()]
print(*names)
with d.Context(name=names[0]) as context:
    print(context.query_device_ex().hca_core_clock)
"""


@pytest.mark.skipif(bool(softnic_env.reason("pyverbs")), reason=softnic_env.reason("pyverbs"))
@pytest.mark.parametrize("way", ["ctypes", "preload"])
def test_pyverbs_sees_it(fabric: str, way: str) -> None:
    env = softnic_env.environment(f"{fabric}/0", preload=way == "preload")
    names, clock = run(sys.executable, "-c", PYVERBS, way, env=env).splitlines()
    assert names.split()[0] == softnic_env.device(fabric, 0)
    assert clock == "1000000"


LINKED = """
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_port_attr port;

	if (!context || ibv_query_port(context, 1, &port))
		return 1;
	puts(ibv_get_device_name(list[0]));
	return ibv_close_device(context);
}
"""


@pytest.mark.skipif(not shutil.which("cc") or not Path("/usr/include/infiniband/verbs.h").exists(), reason="no compiler or libibverbs-dev")
def test_linked_before_libibverbs(fabric: str, tmp_path: Path) -> None:
    source, program, library = tmp_path / "linked.c", tmp_path / "linked", softnic_env.library()
    source.write_text(LINKED)
    env = softnic_env.environment(f"{fabric}/0")
    run("cc", "-o", str(program), str(source), str(library), "-libverbs", f"-Wl,-rpath,{library.parent}", env=env)
    assert run(str(program), env=env).strip() == softnic_env.device(fabric, 0)


TWO_COPIES = """
import ctypes, os, sys
lib = ctypes.CDLL(os.environ["PYVMA_SOFTNIC_LIB"])
for call in (lib.ibv_get_device_list, lib.ibv_open_device, lib.ibv_alloc_pd):
    call.restype = ctypes.c_void_p
devices = ctypes.cast(lib.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
context = ctypes.c_void_p(lib.ibv_open_device(ctypes.c_void_p(devices[0])))
assert context.value and lib.ibv_alloc_pd(context)
lib.ibv_free_device_list(devices)
print(lib.ibv_close_device(context))
"""


def test_two_copies_in_one_process(fabric: str, tmp_path: Path) -> None:
    """One preloaded, one loaded: each keeps to itself, also when it calls its own exports."""
    copy = shutil.copy(str(softnic_env.library()), tmp_path / "copy.so")
    env = softnic_env.environment(f"{fabric}/0")
    env["LD_PRELOAD"] = str(copy)
    assert run(sys.executable, "-c", TWO_COPIES, env=env) == "0\n"


def test_exports_are_the_list() -> None:
    """The symbols of the library are exactly those of its map, without versions."""
    lines = (softnic_env.ROOT / "native" / "softnic" / "softnic.map").read_text().splitlines()
    wanted = {line.strip(" \t;") for line in lines if line.startswith("\t") and line.endswith(";") and "*" not in line}
    table = run("nm", "-D", "--defined-only", str(softnic_env.library()), env=softnic_env.environment())
    found = {line.split()[2] for line in table.splitlines()}
    assert len(wanted) > 60
    assert found - {"_init", "_fini"} == wanted
