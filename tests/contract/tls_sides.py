"""Where a case of TLS runs."""

from __future__ import annotations

import importlib
import ssl
from pathlib import Path
from types import ModuleType
from typing import Any

from certificates import HOSTNAME, Certificates
from sides import Net
from streams import pair, running


class Tls:
    """A net with the module that makes TLS sockets of its streams."""

    def __init__(self, net: Net, certificates: Certificates) -> None:
        self.net, self.certificates = net, certificates
        self.module: ModuleType = importlib.import_module("pyvma.ssl" if net.ours else "ssl")

    def server(self, version: Any = None, chain: Path | None = None) -> Any:
        context = self.module.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain or self.certificates.server)
        if version:
            context.minimum_version = context.maximum_version = version
        return context

    def client(self, version: Any = None) -> Any:
        context = self.module.create_default_context(cafile=str(self.certificates.authority))
        if version:
            context.minimum_version = context.maximum_version = version
        return context

    def keep(self, made: Any) -> Any:
        self.net.opened.append(made)
        assert isinstance(made, ssl.SSLSocket) and isinstance(made, self.module.SSLSocket)
        if self.net.ours:
            assert bool(made.offload) == self.net.offloaded
        return made

    def pair(self, server: Any = None, client: Any = None, hostname: str | None = HOSTNAME, session: Any = None) -> tuple[Any, Any]:
        """(accepted, connected) after the handshake."""
        a, b = pair(self.net)
        made: list[Any] = []
        with running(lambda: made.append((server or self.server()).wrap_socket(a, server_side=True))):
            wrapped = self.keep((client or self.client()).wrap_socket(b, server_hostname=hostname, session=session))
        assert (a.fileno(), b.fileno()) == (-1, -1)
        return self.keep(made[0]), wrapped
