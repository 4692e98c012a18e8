"""Certificates for tests, made anew with the command `openssl`: an authority of our own, and what it has signed."""

from __future__ import annotations

import subprocess
from pathlib import Path

HOSTNAME, OTHER_HOSTNAME = "server.test", "other.test"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*args: str) -> None:
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


class Certificates:
    """Files of PEM: `authority`; with their keys `server`, `other`, `expired` and `client`; and `stranger`, which nobody has signed."""

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        """`addresses` are the server's besides its name."""
        self._folder = folder
        self.authority = folder / "authority.pem"
        self._authority_key = folder / "authority.key"
        basics = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        output = ("-keyout", str(self._authority_key), "-out", str(self.authority))
        _openssl("req", "-x509", *_KEY, *output, "-days", "3", "-subj", "/CN=tests", *basics)
        names = ",".join([f"DNS:{HOSTNAME}", *(f"IP:{address}" for address in addresses)])
        self.server = self._signed("server", HOSTNAME, names)
        self.other = self._signed("other", OTHER_HOSTNAME, f"DNS:{OTHER_HOSTNAME}")
        self.expired = self._signed("expired", HOSTNAME, names, days=-1)
        self.client = self._signed("client", "client", "DNS:client.test")
        self.stranger = self._signed("stranger", HOSTNAME, names, signed=False)

    def _signed(self, name: str, subject: str, names: str, days: int = 3, signed: bool = True) -> Path:
        request, key, made = (self._folder / f"{name}.{end}" for end in ("csr", "key", "pem"))
        subject_and_names = ("-subj", f"/CN={subject}", "-addext", f"subjectAltName={names}")
        _openssl("req", "-new", *_KEY, "-keyout", str(key), "-out", str(request), *subject_and_names)
        by = ("-CA", str(self.authority), "-CAkey", str(self._authority_key)) if signed else ("-key", str(key))
        _openssl("x509", "-req", "-in", str(request), *by, "-days", str(days), "-copy_extensions", "copy", "-out", str(made))
        made.write_text(made.read_text() + key.read_text())
        return made
