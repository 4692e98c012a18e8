"""The software NIC for verbs programs that know nothing of it: where its library is, and how a process gets it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def library() -> Path | None:
    """PYVMA_SOFTNIC_LIB, else the installed package's, else the release build's; None when there is none."""
    candidates = [Path(os.environ["PYVMA_SOFTNIC_LIB"])] if "PYVMA_SOFTNIC_LIB" in os.environ else []
    spec = importlib.util.find_spec("pyvma")
    if spec and spec.submodule_search_locations:
        candidates += [Path(place) / "_native" / "libpyvma-softnic.so" for place in spec.submodule_search_locations]
    candidates.append(ROOT / "build" / "release" / "libpyvma-softnic.so")
    return next((path for path in candidates if path.exists()), None)


def reason(*modules: str) -> str:
    """Why a test that needs the library and these modules cannot run; empty when it can."""
    if library() is None:
        return "no libpyvma-softnic.so: install the package or build the release preset"
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} not importable: Debian's python3-pyverbs and python3-scapy" if missing else ""


def load() -> None:
    """Puts the library before libibverbs in this process. Only before pyverbs is imported does this have an effect."""
    path = library()
    assert path is not None
    ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def device(fabric: str, port: int) -> str:
    """Name of the RDMA device of a port."""
    return f"softnic_{fabric}_{port}"


def environment(*ports: str, preload: bool = False) -> dict[str, str]:
    """An environment in which these ports (as PYVMA_SOFTNIC has them: FABRIC/PORT[,mac=..][,mtu=..]) are devices.

    With `preload` for programs that are not Python; Python processes call load() instead.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYVMA_", "VMA_"))}
    kept["PYVMA_SOFTNIC"] = ";".join(ports)
    path = library()
    assert path is not None
    kept["PYVMA_SOFTNIC_LIB"] = str(path)
    if preload:
        kept["LD_PRELOAD"] = str(path)
    return kept
