"""The kernel's files below a root: sysfs and configfs of this machine, or of a tree of the caller's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ._error import DeviceError


class Tree:
    """Files below `root` as the kernel lays them out; nothing else is ever touched, wherever links lead."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self.root = Path(root).resolve()
        self.infiniband = self.root / "sys/class/infiniband"
        self.net = self.root / "sys/class/net"
        self.pci = self.root / "sys/bus/pci/devices"
        self.cm = self.root / "sys/kernel/config/rdma_cm"

    def inside(self, path: Path) -> Path:
        """The file that a path leads to. DeviceError when that is not below the root."""
        real = path.resolve()
        if not real.is_relative_to(self.root):
            raise DeviceError(f"{path}: leads out of {self.root}")
        return real

    def read(self, path: Path) -> str | None:
        """The text without white space around it; None: there is no such file, or it cannot be read."""
        try:
            return self.inside(path).read_text(errors="replace").strip()
        except (OSError, DeviceError):
            return None

    def write(self, path: Path, text: str) -> None:
        """One write of one line, as attributes want it. DeviceError says what the kernel refused."""
        try:
            fd = os.open(self.inside(path), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(fd, f"{text}\n".encode())
            finally:
                os.close(fd)
        except DeviceError:
            raise
        except OSError as error:
            hint = ": run as root" if isinstance(error, PermissionError) else ""
            raise DeviceError(f"{path}: writing {text!r}: {error.strerror}{hint}") from None

    def names(self, path: Path) -> list[str]:
        """What a folder holds, numbers in their order; empty when there is no such folder."""
        try:
            found = [entry.name for entry in self.inside(path).iterdir()]
        except (OSError, DeviceError):
            return []
        return sorted(found, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))

    def target(self, path: Path) -> str | None:
        """Name of what a link leads to."""
        return self.inside(path).name if path.is_symlink() else None

    @contextmanager
    def cm_folder(self, device: str) -> Iterator[Path | None]:
        """RDMA-CM's folder of a device in configfs, made for the time being when it is missing, as that alone lets the kernel show its
        attributes; None: it cannot be had."""
        folder = self.cm / device
        made = False
        if not folder.is_dir():
            try:
                self.inside(self.cm)
                folder.mkdir()
                made = True
            except (OSError, DeviceError):
                yield None
                return
        try:
            yield folder
        finally:
            if made:
                with suppress(OSError):  # somebody else has it, or took it away
                    folder.rmdir()
