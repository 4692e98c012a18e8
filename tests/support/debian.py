"""A bare Debian 12, as debootstrap makes it, in a folder: what a test runs in it sees nothing else of this machine but its network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exchange import wait_for

MAKE_LIMIT_S = 900
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP = Path("/etc/pip.conf")


@dataclass
class System:
    root: Path
    prefix: list[str]
    """To be put before a command that is to run there."""
    env: dict[str, str]


def _package_folders() -> list[Path]:
    """Where this machine's pip looks beside the index."""
    told = PIP.read_text() if PIP.exists() else ""
    told += " ".join(value for name, value in os.environ.items() if name.startswith("PIP_"))
    return sorted({path for path in map(Path, re.findall(r"(?<![\w:/.])(?:file://)?(/opt/[\w./-]+)", told)) if path.is_dir()})


@contextmanager
def bare(folder: Path) -> Iterator[System]:
    """Makes the system; at the end what runs there is ended and all is removed. It has Debian's essential packages and apt, and pip's
    configuration of here."""
    root = folder / "debian"
    make = ["debootstrap", "--variant=minbase", "bookworm", str(root)]
    done = subprocess.run(make, capture_output=True, text=True, timeout=MAKE_LIMIT_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    if PIP.exists():
        shutil.copy(PIP, root / "etc")
    shutil.copy(CERTIFICATES, root / "etc")
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev", f"mount -t tmpfs tmpfs {root}/dev/shm"]
    mounts += [f"mkdir -p {root}{place} && mount --bind {place} {root}{place}" for place in _package_folders()]
    # Processes and mounts of the system are in namespaces of this one's, and gone with it.
    command = " && ".join([*mounts, "echo ready", "exec sleep infinity"])
    holder = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        wait_for("the system", lambda: bool(children.read_text().split()))
        enter = ["nsenter", "--target", children.read_text().split()[0], "--mount", "--pid", "chroot", str(root)]
        env = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.lower().endswith("_proxy")}
        env |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "PYTHONUNBUFFERED": "1"}
        env["PIP_CERT"] = f"/etc/{CERTIFICATES.name}"  # those of here: what Debian's packages install has not what a proxy may have added
        yield System(root, enter, env)
    finally:
        holder.kill()
        holder.communicate()
        shutil.rmtree(root, ignore_errors=True)
