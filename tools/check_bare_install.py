"""`pip install .` with nothing but a compiler: no vendor header is found, and the package still works on kernel sockets.

Builds the package into a fresh virtual environment with the verbs headers hidden from the build, then asks it: a datagram over
kernel sockets, the reason in sock.offload, and a doctor that says what is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROBE = """
import pyvma.socket as socket
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
a.bind(("127.0.0.1", 0))
b.sendto(b"hello", a.getsockname())
data, sender = a.recvfrom(100)
assert data == b"hello" and sender[0] == "127.0.0.1", (data, sender)
print("offload:", a.offload)
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(venv)], check=True)
        # The build tools come from the environment that runs this check; only the package is new.
        site = next((ROOT / ".venv" / "lib").glob("python3*/site-packages"))
        next((venv / "lib").glob("python3*/site-packages")).joinpath("tools.pth").write_text(f"{site}\n")
        python = str(venv / "bin" / "python")
        environment = {**os.environ, "PYTHONSAFEPATH": "1", "PATH": f"{ROOT}/.venv/bin:{os.environ['PATH']}"}
        install = [python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--force-reinstall", "--no-index"]
        install += ["--config-settings=cmake.define.PV_HAVE_VERBS=", "--config-settings=build-dir=" + folder + "/build", str(ROOT)]
        subprocess.run(install, check=True, env=environment, cwd=folder)
        subprocess.run([python, "-c", PROBE], check=True, env=environment, cwd=folder)
        where = [python, "-c", "import pyvma; print(pyvma.__file__)"]
        found = subprocess.run(where, check=True, env=environment, cwd=folder, capture_output=True, text=True).stdout
        if not found.startswith(folder):
            print(f"the package under test is not the one just installed: {found}")
            return 1
        doctor = subprocess.run([python, "-m", "pyvma", "doctor"], env=environment, cwd=folder, capture_output=True, text=True)
        print(doctor.stdout)
        if "verbs" not in doctor.stdout or "libibverbs-dev" not in doctor.stdout:
            print("the doctor does not say that the verbs ring was not built, or what to install")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
