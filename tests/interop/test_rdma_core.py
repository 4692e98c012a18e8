"""rdma-core's own Python tests, as Debian ships them, on the software NIC.

What they cannot run here they skip themselves (no RC, UD, SRQ, ...: a raw packet device). So that a device which supports nothing would
not pass, the tests in MUST_PASS must have run and passed; none at all may fail.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import softnic_env

SHIPPED = Path("/usr/share/doc/rdma-core/tests")

pytestmark = [
    pytest.mark.skipif(bool(softnic_env.reason("pyverbs")), reason=softnic_env.reason("pyverbs")),
    pytest.mark.skipif(not SHIPPED.is_dir(), reason="rdma-core's tests are not installed: Debian's rdma-core"),
]

RUNNER = """
import json, os, sys, unittest
import softnic_env
softnic_env.load()
top, report, device = sys.argv[1:4]
sys.argv[1:] = ["--dev", device]
sys.path[:0] = [top, os.path.join(top, "tests")]
from args_parser import parser
parser.parse_args()

class Result(unittest.TextTestResult):
    def startTestRun(self):
        self.seen = {}
    def addSuccess(self, test):
        self.seen[test.id()] = "passed"
    def addSkip(self, test, reason):
        self.seen[test.id()] = "skipped: " + reason
    def addFailure(self, test, err):
        self.seen[test.id()] = "FAILED: " + self._exc_info_to_string(err, test)
    addError = addFailure

suite = unittest.defaultTestLoader.discover(os.path.join(top, "tests"), top_level_dir=top)
result = unittest.TextTestRunner(resultclass=Result).run(suite)
with open(report, "w") as file:
    json.dump(result.seen, file)
"""

MUST_PASS = """
test_cq.CQAPITest: test_create_cq test_create_cq_bad_flow test_create_cq_with_comp_channel
test_cqex.CQEXAPITest: test_create_cq_ex test_create_cq_ex_bad_flow
test_device.DeviceTest: test_dev_list test_open_dev test_phys_port_cnt_ex test_query_device test_query_device_ex test_query_gid
test_device.DeviceTest: test_query_gid_ex test_query_gid_ex_bad_flow test_query_gid_table test_query_gid_table_bad_flow test_query_pkey
test_device.DeviceTest: test_query_port test_query_port_bad_flow
test_fork.ForkAPITest: test_is_fork_initialized
test_device.DMTest: test_create_dm test_create_dm_bad_flow test_destroy_dm test_destroy_dm_bad_flow test_dm_read test_dm_write
test_device.DMTest: test_dm_write_bad_flow test_multi_process_alloc_dm
test_mr.DeviceMemoryAPITest: test_create_dm_mr test_dm_bad_access test_dm_bad_registration
test_mr.MRTest: test_reg_mr_bad_flags
test_pd.PDTest: test_alloc_pd test_dealloc_pd test_destroy_pd_twice test_multiple_pd_creation
"""

# These refuse to run for an ordinary user, although the device would let them.
MUST_PASS_ROOT = """
test_flow.FlowTest: test_eth_spec_flow_traffic test_ipv4_spec_flow_traffic test_ipv6_spec_flow_traffic test_tcp_spec_flow_traffic
test_flow.FlowTest: test_udp_spec_flow_traffic
test_mlx5_timestamp.TimeStampTest: test_timestamp_real_time_raw_traffic
test_qp.QPTest: test_create_raw_qp_ex_no_attr test_create_raw_qp_ex_with_attr test_create_raw_qp_no_attr test_create_raw_qp_with_attr
test_qp.QPTest: test_query_raw_qp
test_rss_traffic.RSSTrafficTest: test_rss_traffic
"""


def names(table: str) -> set[str]:
    return {f"tests.{line.split(': ')[0]}.{test}" for line in table.strip().splitlines() for test in line.split(": ")[1].split()}


def unpack(top: Path) -> None:
    for path in SHIPPED.iterdir():
        if path.suffix == ".gz":
            (top / "tests" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            shutil.copy(path, top / "tests" / path.name)


def test_suite(fabric: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    unpack(tmp_path)
    # One of the tests wants messages of more than 4 KiB.
    env = softnic_env.environment(f"{fabric}/0,mtu=9000")
    env["PYTHONPATH"] = str(Path(__file__).parent)
    report = tmp_path / "report.json"
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, str(tmp_path), str(report), softnic_env.device(fabric, 0)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert report.exists(), done.stdout + done.stderr
    seen: dict[str, str] = json.loads(report.read_text())
    failed = {name: why for name, why in seen.items() if why.startswith("FAILED")}
    assert not failed, "\n".join(f"{name}\n{why}" for name, why in failed.items())
    wanted = names(MUST_PASS) | (names(MUST_PASS_ROOT) if os.geteuid() == 0 else set())
    assert {name: seen.get(name) for name in wanted if seen.get(name) != "passed"} == {}
    assert len(seen) >= 270
    assert not re.search("Traceback", done.stderr), done.stderr
