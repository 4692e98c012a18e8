"""BSD sockets over user-space rings.

`pyvma.socket` stands in for the standard library's `socket`, `patch()` sets it there for a whole program; `pyvma.ring` tells devices,
interfaces and counters. Importing starts nothing: the engine starts with the first socket, or with :func:`start`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._patch import Patched, PatchWarning, patch, unpatch

__all__ = ["PatchWarning", "Patched", "configure", "counters", "offload", "patch", "settings", "start", "stop", "unpatch", "version"]

Setting = bool | int | float | str | Iterable[str]

if TYPE_CHECKING:
    version: str


def __getattr__(name: str) -> Any:
    if name == "version" or name == "__version__":
        from ._native import ffi, lib

        return ffi.string(lib.pyvma_version()).decode()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes | bytearray | memoryview):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return ";".join(items)
    raise TypeError(f"{name}: a bool, a number, a string or a list of strings is wanted, not {type(value).__name__}")


def _set(name: str, value: Any) -> None:
    from ._native import engine_error, lib

    text = _text(name, value)
    if "\0" in text:
        raise ValueError(f"{name}: embedded null character")
    rc = lib.pyvma_config_set(name.encode(), text.encode())
    if rc < 0:
        raise ValueError(engine_error(rc).strerror) if rc == -22 else engine_error(rc)


def configure(config: str | os.PathLike[str] | None = None, **settings: Setting) -> None:
    """Makes settings for the engine, before it starts.

    `config` names a TOML file of settings, applied first. The names are those of `pyvma config`; a list of strings is given for
    `interfaces`. ValueError says which setting is unknown or malformed; OSError(EBUSY) once the engine runs.
    """
    given: dict[str, Any] = {}
    if config is not None:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib

        with open(config, "rb") as file:
            try:
                given.update(tomllib.load(file))
            except tomllib.TOMLDecodeError as error:
                raise ValueError(f"{os.fspath(config)}: {error}") from None
    given.update(settings)
    for name, value in given.items():
        _set(name, value)


def settings() -> dict[str, str]:
    """The settings in force, by name, as text."""
    from . import _config

    return {row.name: row.value for row in _config.rows()}


def start() -> None:
    """Starts the engine now; otherwise the first socket does. OSError says what cannot be had."""
    from ._native import start

    start()


def stop() -> None:
    """Closes every offloaded socket and ring. Runs at exit by itself."""
    from ._native import lib

    lib.pyvma_stop()


def counters() -> dict[str, int]:
    """The engine's counters, by name: "net.rx_frames", "udp.rx_no_port", "ring.IFNAME.tx_packets", ..."""
    from ._native import ffi, lib

    found: dict[str, int] = {}
    row = ffi.new("struct pyvma_counter *")
    while lib.pyvma_counter_get(len(found), row) == 0:
        found[ffi.string(row.name).decode()] = row.value
    return found


def offload(sock: Any) -> str:
    """The ring that carries a socket, or the reason why the kernel does; of any socket, the standard library's too."""
    text = getattr(sock, "offload", None)
    return "not a socket of pyvma" if text is None else str(text)
