"""A real ``sshd`` in each node, and a user who may log in to all of them without a password."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import namespace_nodes

REPO = Path(__file__).resolve().parent.parent.parent

#: Where ``scripts/install-tools`` unpacks the server: installed, it would listen on this machine.
UNPACKED = REPO / ".tools" / "openssh"

#: Only what is not the server's default anyway: no system accounts, nothing outside ``folder``.
CONFIGURATION = """
HostKey {folder}/host_key
PidFile none
UsePAM no
PasswordAuthentication no
Subsystem sftp internal-sftp
"""


def server() -> Path | None:
    """The ``sshd`` of the system, or the unpacked one."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    unpacked = UNPACKED / "usr" / "sbin" / "sshd"
    return Path(found) if found else unpacked if unpacked.exists() else None


def reason_not() -> str:
    """Why there can be no ssh between nodes; empty if there can."""
    missing = [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)]
    missing += [] if server() else ["sshd"]
    return f"not installed: {', '.join(missing)} (make tools)" if missing else ""


@contextmanager
def ssh(cluster: namespace_nodes.Nodes, folder: Path) -> Iterator[None]:
    """Let the nodes of ``cluster`` reach each other by ``ssh``; ``folder`` is for keys, in a home of their own."""
    home = folder / "home" / ".ssh"
    home.mkdir(parents=True, mode=0o700)
    for key in (folder / "host_key", home / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    shutil.copy(home / "id_ed25519.pub", home / "authorized_keys")
    host_key = (folder / "host_key.pub").read_text()
    (home / "known_hosts").write_text("".join(f"{name} {host_key}" for name in cluster.names))
    (folder / "config").write_text(CONFIGURATION.format(folder=folder))
    user = pwd.getpwuid(os.getuid())
    (folder / "passwd").write_text(
        f"{user.pw_name}:x:{user.pw_uid}:{user.pw_gid}::{folder}/home:/bin/sh\nsshd:x:65533:65534::/run/sshd:/bin/false\n"
    )
    (folder / "shadow").write_text(f"{user.pw_name}:*:1:0:99999:7:::\n")
    with ExitStack() as stack:
        for name in cluster.names:
            _serve(cluster, name, folder, stack)
        yield


def _serve(cluster: namespace_nodes.Nodes, name: str, folder: Path, stack: ExitStack) -> None:
    """Start a node's server, and wait until it answers."""
    libraries = ":".join(map(str, {path.parent for path in UNPACKED.rglob("*.so.*")}))
    script = (
        f"mount --bind {folder}/passwd /etc/passwd; mount --bind {folder}/shadow /etc/shadow; "
        "mount -t tmpfs none /run; mkdir -m 755 /run/sshd; "
        f"LD_LIBRARY_PATH={libraries} exec {server()} -D -e -f {folder}/config"
    )
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            cluster.command(name, script), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    deadline = time.monotonic() + 300
    while subprocess.run(cluster.command(name, "ssh -o BatchMode=yes", name, "true"), capture_output=True).returncode:
        assert time.monotonic() < deadline, (folder / f"{name}.log").read_text()
        time.sleep(0.05)
