"""A real ``sshd`` for this user alone, at a free port, with keys and names of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from free_ports import taken
from ssh_nodes import UNPACKED, server

CONFIGURATION = """
HostKey {folder}/host_key
PidFile none
UsePAM no
PasswordAuthentication no
StrictModes no
AuthorizedKeysFile {folder}/authorized_keys
Subsystem sftp {sftp}
"""


def sftp_program() -> Path | None:
    """The ``sftp-server`` of the system, or the unpacked one."""
    places = (Path("/"), UNPACKED)
    found = (place / name for place in places for name in ("usr/lib/openssh/sftp-server", "usr/libexec/sftp-server"))
    return next((path for path in found if path.exists()), None)


def reason_not() -> str:
    """Why there can be no server; empty: there can."""
    missing = [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)]
    missing += [] if server() else ["sshd"]
    missing += [] if sftp_program() else ["sftp-server"]
    if missing:
        return f"not installed: {', '.join(missing)} (make tools)"
    return "" if os.geteuid() == 0 or not shutil.which("unshare") else "sshd needs /run/sshd: run as root"


@contextmanager
def serve(folder: Path, binaries: Path) -> Iterator[str]:
    """Let ``ssh`` in ``binaries`` reach the server by its key; gives ``sftp://host:port``."""
    for key in ("host_key", "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    shutil.copy(folder / "id_ed25519.pub", folder / "authorized_keys")
    (folder / "sshd_config").write_text(CONFIGURATION.format(folder=folder, sftp=sftp_program()))
    with taken(1) as ports:
        yield from _serve_at(ports[0], folder, binaries)


def _serve_at(port: int, folder: Path, binaries: Path) -> Iterator[str]:
    known = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {known}")
    options = f"-F none -i {folder}/id_ed25519 -o UserKnownHostsFile={folder}/known_hosts -o GlobalKnownHostsFile=none"
    wrapper = binaries / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    wrapper.chmod(0o755)
    libraries = ":".join(map(str, {path.parent for path in UNPACKED.rglob("*.so.*")}))
    script = (
        "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && "
        "grep -q ^sshd: /etc/passwd || { cp /etc/passwd /run/passwd; echo sshd:x:65533:65534::/run/sshd:/bin/false >> /run/passwd; "
        "mount --bind /run/passwd /etc/passwd; }; "
        f"LD_LIBRARY_PATH={libraries} exec {server()} -D -e -p {port} -f {shlex.quote(str(folder / 'sshd_config'))}"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdin=subprocess.DEVNULL, stderr=log)
    try:
        line = [wrapper, "-o", "BatchMode=yes", "-p", str(port), "127.0.0.1", "true"]
        while subprocess.run(line, capture_output=True).returncode:
            assert process.poll() is None, (folder / "log").read_text()
        yield f"sftp://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
