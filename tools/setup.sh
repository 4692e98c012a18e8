#!/usr/bin/env bash
# Makes a fresh Debian 12 ready: what is missing from its packages, a virtual environment in .venv on Debian's own Python (pyverbs
# comes from Debian's package and has none on the index), and the package built and installed into it.
#
# PYVMA_TEST_LONG=1 runs more programs, of which openssh-server, nodejs and default-jdk-headless are not installed by this: heavy, or servers that
# a machine may not want. Those tests are skipped without them.
#
# Without root the packages must be in place already; what is missing is then named, and only a compiler is essential.
set -euo pipefail
cd "$(dirname "$0")/.."

# package: why
packages=$(sed 's/ *#.*//' <<'LIST'
gcc                    # the compiler
make
cmake
ninja-build
pkg-config
git                    # the tests that look at the tracked files
python3                # the interpreter of .venv
python3-venv
python3-dev            # Python.h, for the extension module
libibverbs-dev         # infiniband/verbs.h: the verbs ring and the software NIC
rdma-core              # udev rules and rdma-core's own tests, in its documentation
ibverbs-utils          # ibv_devinfo
ibverbs-providers
python3-pyverbs        # an independent verbs client; `pyvma devinfo`
clang                  # second compiler, fuzz targets
clang-format
llvm                   # symbolizer for the sanitizers
libclang-rt-14-dev     # clang's sanitizer and fuzzer runtime
valgrind               # instructions per datagram
iproute2               # network namespaces and TAP devices in tests
debootstrap            # a bare Debian 12 for the newcomer's test
iputils-ping           # kernel programs as peers
traceroute
socat
sockperf
ncat
ethtool
nftables               # what a test takes from the wire or changes on it
tcpdump
tshark                 # reads what `pyvma capture` writes
curl                   # real programs that speak TCP
nginx
redis-server
wrk
mosquitto
dnsmasq-base
postgresql
iperf3                 # programs for `pyvma run`
memcached
haproxy
openssh-client
bind9-dnsutils
openssl                # certificates of tests
libpython3.11-testsuite  # CPython's own test_socket
codespell
libbpf-dev             # libbpf: the AF_XDP ring
libmnl-dev             # rtnetlink
tmux                   # a terminal for the full-screen view, in tests
bpftrace               # watches the static probes, in a test
zsh                    # shells that complete commands
fish
libxdp1                # attaches somebody else's XDP program, in a test
LIST
)

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$'; }

missing=()
for package in $packages; do
	installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
	if [ "$(id -u)" = 0 ]; then
		echo "setup: installing ${missing[*]}"
		export DEBIAN_FRONTEND=noninteractive
		if [ ! -e /usr/sbin/policy-rc.d ]; then # servers are for the tests to start, not for the packages
			trap 'rm -f /usr/sbin/policy-rc.d' EXIT
			printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
			chmod 755 /usr/sbin/policy-rc.d
		fi
		timeout 600 apt-get update -qq
		timeout 1500 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
	else
		echo "setup: not installed and no root to do it: ${missing[*]}" >&2
		command -v gcc >/dev/null || { echo "setup: a C compiler is needed" >&2; exit 1; }
	fi
fi

if [ ! -x .venv/bin/python ]; then
	echo "setup: making .venv"
	/usr/bin/python3 -m venv --system-site-packages .venv
fi
requirements=tools/requirements.txt
if ! cmp -s "$requirements" .venv/requirements.txt; then
	.venv/bin/pip install -q --disable-pip-version-check -r "$requirements"
	cp "$requirements" .venv/requirements.txt
fi
echo "setup: building and installing pyvma into .venv"
.venv/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
touch .venv/installed
echo "setup: done"
