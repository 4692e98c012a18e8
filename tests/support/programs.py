"""Servers from Debian's packages, in a namespace, with everything they write in a folder of their own; ended by their process."""

from __future__ import annotations

import subprocess
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
		root {folder}/files;
		location /put/ {{ dav_methods PUT DELETE; create_full_put_path on; }}
	}}
}}
"""


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(END_LIMIT_S)


def listens(ns: Namespace, port: int) -> bool:
    return f":{port} " in ns.run("ss", "-ltn")


@contextmanager
def nginx(ns: Namespace, folder: Path, listen: list[str], port: int) -> Iterator[Path]:
    """The folder of what it serves; below put/ it takes uploads. `listen` are addresses as nginx writes them."""
    files = folder / "files"
    files.mkdir(parents=True)
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, listen=";\n\t\tlisten ".join(f"{host}:{port}" for host in listen)))
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
