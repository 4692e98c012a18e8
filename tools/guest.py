#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command as root in a virtual machine with a newer kernel, over the files of this one.

What this machine's kernel lacks, or cannot be trusted with, is tried there: XDP programs bound to a device, VLAN devices, a driver with
zero copy. The guest sees all files of this machine, starts in the folder where this was called, and what it writes is gone with it. It
has no network but what the command makes, and two network devices (virtio) that are joined to each other alone. The processor is
emulated, many times slower than it is: no time measured in there means anything.

Usage: tools/guest.py --fetch            gets the kernel (of Debian 13's backports) into build/guest, once; about 36 MB
       tools/guest.py [--memory MB] [--cpus N] -- COMMAND [ARGUMENT ...]
Needs Debian's qemu-system-x86 and busybox-static, and root. Exit status: the command's; 125 when the guest did not get as far.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "guest"
META = "linux-image-cloud-amd64"
SOURCE = """Types: deb
URIs: http://deb.debian.org/debian
Suites: trixie-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
BUSYBOX = Path("/bin/busybox")
VIRTIOFSD = Path("/usr/lib/qemu/virtiofsd")
NIC = "virtio-net-pci,iommu_platform=on,disable-legacy=on"
QEMU = "/usr/bin/qemu-system-x86_64"
# In an order in which each finds what it needs.
MODULES = ("overlay", "veth", "tun", "llc", "stp", "garp", "mrp", "8021q", "failover", "net_failover", "virtio_net")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
echo 3 >/proc/sys/kernel/printk
for m in {modules}; do insmod /modules/$m.ko; done
mount -t virtiofs -o ro host /below || poweroff -f
mount -t tmpfs over /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/below,upperdir=/over/upper,workdir=/over/work root /root || poweroff -f
cp /command /over/upper/.guest
for m in proc sys dev; do mount --move /$m /root/$m; done
exec switch_root /root /bin/bash /.guest
"""
COMMAND = """mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run; mount -t bpf bpf /sys/fs/bpf
ip link set lo up
stty -F /dev/ttyS0 raw
cd {folder}
echo {mark}
{environment} setsid -w {command} </dev/null 2>&1
echo {mark}$?
echo o >/proc/sysrq-trigger
sleep 60
"""
MARK = "--guest--"
KEPT = ("PYTHONSAFEPATH", "PATH", "LANG")


def cpio(files: dict[str, tuple[int, bytes]]) -> bytes:
    """An archive as the kernel unpacks it ("newc"), of name: (mode, content)."""
    out = bytearray()
    for number, (name, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        for part in (b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0", content):
            out += part + b"\0" * (-len(part) % 4)
    return bytes(out)


def images() -> list[Path]:
    """The kernel that was fetched, if any."""
    return sorted((HOME / "root" / "usr" / "lib" / "modules").glob("*/vmlinuz"))


def kernel() -> tuple[Path, Path]:
    """Image and folder of modules of the kernel that was fetched."""
    found = images()
    if not found:
        raise SystemExit("guest: no kernel in build/guest; tools/guest.py --fetch gets one")
    return found[-1], found[-1].parent


def missing() -> str:
    """What keeps the guest from being run; empty: nothing."""
    for path, package in ((Path(QEMU), "qemu-system-x86"), (VIRTIOFSD, "qemu-system-common"), (BUSYBOX, "busybox-static")):
        if not path.exists():
            return f"{package} is not installed"
    if os.geteuid():
        return "needs root, to serve all files"
    return "" if images() else "no kernel in build/guest (tools/guest.py --fetch)"


def depends(package: str, env: dict[str, str]) -> list[str]:
    """What a package of Debian's needs."""
    text = subprocess.run(["apt-cache", "depends", package], env=env, check=True, capture_output=True, text=True).stdout
    return re.findall(r"^ *Depends: (\S+)$", text, re.MULTILINE)


def fetch() -> None:
    """The newest kernel of that suite into build/guest/root, with lists of its own: the machine's sources stay as they are."""
    apt = HOME / "apt"
    for folder in ("lists/partial", "cache/archives/partial", "sources"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "sources" / "backports.sources").write_text(SOURCE)
    (apt / "conf").write_text(
        f'Dir::State::Lists "{apt}/lists";\nDir::Cache "{apt}/cache";\nDir::Etc::SourceList "/dev/null";\n'
        f'Dir::Etc::SourceParts "{apt}/sources";\nAPT::Sandbox::User "root";\n'
    )
    env = {**os.environ, "APT_CONFIG": str(apt / "conf")}
    subprocess.run(["apt-get", "update", "-qq"], env=env, check=True, timeout=300)
    image = [name for name in depends(META, env) if name.startswith("linux-image-")]
    parts = [name for name in depends(image[0], env) if name.startswith(("linux-binary-", "linux-modules-"))] if image else []
    if len(parts) != 2:
        raise SystemExit(f"guest: {META} names no kernel: {image} {parts}")
    for package in apt.glob("*.deb"):  # of a fetch that did not end
        package.unlink()
    subprocess.run(["apt-get", "download", "-qq", *parts], env=env, check=True, timeout=600, cwd=apt)
    shutil.rmtree(HOME / "root", ignore_errors=True)
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(HOME / "root")], check=True)
        package.unlink()


def initramfs(modules: Path, command: str) -> bytes:
    files = dict.fromkeys(("bin", "dev", "proc", "sys", "modules", "below", "over", "root"), (0o40755, b""))
    files["bin/busybox"] = (0o100755, BUSYBOX.read_bytes())
    files["init"] = (0o100755, INIT.format(modules=" ".join(MODULES)).encode())
    files["command"] = (0o100755, command.encode())
    for name in MODULES:
        found = list(modules.rglob(f"{name}.ko.xz"))
        if not found:
            raise SystemExit(f"guest: this kernel has no module {name}")
        files[f"modules/{name}.ko"] = (0o100644, lzma.decompress(found[0].read_bytes()))
    return gzip.compress(cpio(files), 1)


def relay(qemu: subprocess.Popen[bytes]) -> int:
    """What the command prints, and its status."""
    assert qemu.stdout is not None
    started = False
    before: list[str] = []
    for raw in qemu.stdout:
        line = raw.decode(errors="replace").rstrip("\r\n")
        at = line.find(MARK)
        if at >= 0 and started:
            print(line[:at], end="", flush=True)
            return int(line[at + len(MARK) :])
        if at >= 0:
            started = True
        elif started:
            print(line, flush=True)
        else:
            before.append(line)
    print("\n".join(before), file=sys.stderr)
    return 125


def machine(args: argparse.Namespace, sock: Path, image: Path, archive: Path) -> list[str]:
    options = {
        # cmpxchg16b of QEMU 7.2 spoils the flags when several processors are emulated at once.
        "-accel": "tcg,thread=multi -cpu max,-cx16",
        "-smp": str(args.cpus),
        "-m": str(args.memory),
        "-object": f"memory-backend-memfd,id=mem,size={args.memory}M,share=on -numa node,memdev=mem",
        "-chardev": f"socket,id=fs,path={sock} -device vhost-user-fs-pci,chardev=fs,tag=host",
        "-nographic": "-nic none -no-reboot",
    }
    # Zero copy wants addresses for devices (iommu_platform), which virtio does without elsewhere.
    for name in ("a", "b"):
        options[f"-netdev hubport,hubid=0,id={name}"] = f"-device {NIC},netdev={name}"
    command = [QEMU]
    for option, value in options.items():
        command += [*option.split(), *value.split()]
    return [*command, "-kernel", str(image), "-initrd", str(archive), "-append", "console=ttyS0 quiet panic=-1 mitigations=off"]


def run(args: argparse.Namespace) -> int:
    image, modules = kernel()
    environment = [f"{name}={shlex.quote(os.environ[name])}" for name in KEPT if name in os.environ]
    environment += [f"{name}={shlex.quote(value)}" for name, value in os.environ.items() if name.startswith("PYVMA_")]
    command = COMMAND.format(
        folder=shlex.quote(os.getcwd()), mark=MARK, command=shlex.join(args.command), environment="env " + " ".join(environment)
    )
    with tempfile.TemporaryDirectory(prefix="guest") as folder:
        archive, sock = Path(folder) / "initramfs", Path(folder) / "fs"
        archive.write_bytes(initramfs(modules, command))
        processes: list[subprocess.Popen[bytes]] = []
        try:
            with open(Path(folder) / "log", "wb") as log:
                files = subprocess.Popen(
                    [VIRTIOFSD, f"--socket-path={sock}", "-o", "source=/", "-o", "sandbox=chroot", "-o", "cache=always"], stderr=log
                )
            processes.append(files)
            while not sock.exists() and files.poll() is None:
                time.sleep(0.01)
            qemu = subprocess.Popen(machine(args, sock, image, archive), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            processes.append(qemu)
            return relay(qemu)
        finally:
            for process in reversed(processes):
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--memory", type=int, default=2048)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("command", nargs="*")
    args = parser.parse_args()
    if args.fetch:
        fetch()
        return 0
    # Nobody is left behind when this is told to end.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(125))
    if why := missing():
        raise SystemExit(f"guest: {why}")
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
