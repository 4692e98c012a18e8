"""Servers from Debian's packages, in a namespace, with everything they write in a folder of their own; ended by their process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exchange import wait_for
from netns import Namespace

END_LIMIT_S = 30.0

NGINX = """
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
	access_log off;
	sendfile on;
	keepalive_requests 1000000;
	client_max_body_size 0;
	client_body_temp_path {folder}/body;
	proxy_temp_path {folder}/proxy;
	fastcgi_temp_path {folder}/fastcgi;
	uwsgi_temp_path {folder}/uwsgi;
	scgi_temp_path {folder}/scgi;
	server {{
		listen {listen};
		{more}
		root {folder}/files;
		location /put/ {{ dav_methods PUT DELETE; create_full_put_path on; }}
	}}
}}
"""


def ended(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
    process.send_signal(number)
    try:
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(END_LIMIT_S)


def listens(ns: Namespace, port: int) -> bool:
    return f":{port} " in ns.run("ss", "-ltn")


@contextmanager
def nginx(ns: Namespace, folder: Path, listen: list[str], port: int, certificate: Path | None = None) -> Iterator[Path]:
    """The folder of what it serves; below put/ it takes uploads. `listen` are addresses as nginx writes them. With a certificate HTTP/2 by
    TLS on the port above."""
    files = folder / "files"
    files.mkdir(parents=True)
    config = folder / "nginx.conf"
    secure = [f"listen {host}:{port + 1} ssl http2;" for host in listen]
    secure += [f"ssl_certificate {certificate};", f"ssl_certificate_key {certificate};"]
    places = ";\n\t\tlisten ".join(f"{host}:{port}" for host in listen)
    config.write_text(NGINX.format(folder=folder, listen=places, more="\n\t\t".join(secure) if certificate else ""))
    process = ns.popen("nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log"))
    try:
        wait_for("nginx's port", lambda: listens(ns, port))
        yield files
    finally:
        ended(process)


class Redis:
    """redis-server, which keeps nothing on disk; `start` and `stop` it as often as you like."""

    def __init__(self, ns: Namespace, folder: Path, hosts: list[str], port: int) -> None:
        self.ns, self.port = ns, port
        self.command = ["redis-server", "--port", str(port), "--bind", *hosts, "--dir", str(folder), "--logfile", str(folder / "redis.log")]
        self.command += ["--save", "", "--protected-mode", "no", "--daemonize", "no"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = self.ns.popen(*self.command)
        wait_for("redis-server's port", lambda: listens(self.ns, self.port))

    def stop(self) -> None:
        if self.process is not None:
            ended(self.process)
            self.process = None

    def __enter__(self) -> Redis:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def postgres_bin() -> Path | None:
    """The folder of PostgreSQL's programs, of the newest version there is."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: float(path.parent.name))


@contextmanager
def postgres(ns: Namespace, hosts: list[str], port: int, certificate: Path, password: str) -> Iterator[str]:
    """The name of its superuser, who has to give the password. It does not run as root, nor in folders that only root may enter."""
    found, user = postgres_bin(), "postgres"
    assert found is not None
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "password").write_text(password)
        (folder / "certificate").write_bytes(certificate.read_bytes())
        shutil.chown(folder, user)
        for path in folder.iterdir():
            shutil.chown(path, user)
            path.chmod(0o600)
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        made = [*as_user, str(found / "initdb"), "-D", str(folder / "data"), "-U", user, "-A", "scram-sha-256", "--no-sync", "-E", "UTF8"]
        subprocess.run([*made, "--pwfile", str(folder / "password")], check=True, capture_output=True, timeout=60, cwd=folder)
        with (folder / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all all scram-sha-256\n")
        settings = {"listen_addresses": ",".join(hosts), "port": port, "unix_socket_directories": folder, "fsync": "off", "ssl": "on"}
        settings |= {"ssl_cert_file": folder / "certificate", "ssl_key_file": folder / "certificate", "log_destination": "stderr"}
        settings |= {"logging_collector": "on", "log_directory": folder}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        process = ns.popen(*as_user, str(found / "postgres"), "-D", str(folder / "data"), *options)
        try:
            wait_for("PostgreSQL's port", lambda: listens(ns, port))
            yield user
        finally:
            ended(process, signal.SIGINT)
    finally:
        shutil.rmtree(folder)


@contextmanager
def mosquitto(ns: Namespace, folder: Path, host: str, port: int, certificate: Path) -> Iterator[None]:
    """An MQTT broker, by TLS on the port above."""
    folder.mkdir()
    lines = ["user root", "allow_anonymous true", "persistence false", f"log_dest file {folder / 'log'}", f"listener {port} {host}"]
    lines += [f"listener {port + 1} {host}", f"certfile {certificate}", f"keyfile {certificate}"]
    (folder / "conf").write_text("\n".join(lines))
    process = ns.popen("mosquitto", "-c", str(folder / "conf"))
    try:
        wait_for("mosquitto's port", lambda: listens(ns, port + 1))
        yield
    finally:
        ended(process)


@contextmanager
def dnsmasq(ns: Namespace, folder: Path, hosts: list[str], port: int) -> Iterator[None]:
    """A name server of the domain `test`: host0 to host99, text, and many, which has 40 addresses."""
    folder.mkdir()
    names = [f"{net}{number} host{number}.test" for number in range(100) for net in ("10.1.0.", "fd01::")]
    names += [f"10.2.0.{number} many.test" for number in range(1, 41)]
    (folder / "hosts").write_text("\n".join(names))
    command = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", f"--addn-hosts={folder / 'hosts'}"]
    command += ["--local=/test/", "--txt-record=text.test,v=1,two", f"--port={port}", "--bind-interfaces", "--user=root", "--pid-file="]
    command += ["--edns-packet-max=4096", f"--log-facility={folder / 'log'}"]
    process = ns.popen(*command, *(f"--listen-address={host}" for host in hosts))
    try:
        wait_for("dnsmasq's port", lambda: listens(ns, port))
        yield
    finally:
        ended(process)
