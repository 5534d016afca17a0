"""Several nodes on one machine: Linux namespaces on a bridge. Root only. For tests and ``bench.chaos_cluster``.

Each node has its own network, processes, host name, shared memory and ``/var/tmp``; the disk is shared, as on a
cluster, and here ``/tmp`` too. So no two nodes give out the same process numbers: the daemons of Open MPI name their
folders in ``/tmp`` by them alone, and two that had one folder would write over what their ranks are about to read.
A node dies with the first process of its process namespace: the kernel ends everything in it at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from process_lookup import arguments

SHELL = Path(__file__).with_name("remote_shell.py")

#: Process numbers that a node gives out before it comes to those of the next one.
NUMBERS = 4000

#: Sets a node up and becomes its first process. Its memory filesystem and mounts are its own.
BOOT = """
echo {first} > /proc/sys/kernel/ns_last_pid
hostname {name}
mount --make-rprivate /
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /var/tmp
ip link set lo up
exec {python} -S -E {shell} serve {folder}/{name}
"""


def reason_not() -> str:
    """Why nodes cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "nodes are namespaces, which need root"
    for program in ("ip", "unshare"):
        if not shutil.which(program):
            return f"{program} is not installed"
    made = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "true"], capture_output=True, text=True)
    return f"namespaces cannot be made here: {made.stderr.strip()}" if made.returncode else ""


@dataclass
class Nodes:
    """``names`` are nodes that can reach each other; use as a context. ``rsh`` takes the place of ``ssh``.

    Args:
        folder: For sockets and scripts; its path is short (sockets have 108 characters at most).
        names: Of the nodes to make.
        number: Tells this cluster's network from another's on the same machine, 0 to 255; the next one that is free.
    """

    folder: Path
    names: tuple[str, ...]
    number: int = 0
    _boots: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def rsh(self) -> Path:
        return self.folder / "rsh"

    @property
    def gateway(self) -> str:
        """Under which address all nodes reach this machine itself."""
        return f"10.78.{self.number}.254"

    @property
    def _bridge(self) -> str:
        return f"mrb{self.number}"

    def __enter__(self) -> Nodes:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rsh.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {SHELL} call {self.folder} "$@"\n')
        self.rsh.chmod(0o755)
        self._take_number()
        hosts = "".join(f"10.78.{self.number}.{k + 1} {name}\n" for k, name in enumerate(self.names))
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        _ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            self.kill(name)
        _ip("link", "del", self._bridge)

    def _take_number(self) -> None:
        """Make the bridge; another's, or what a killed one left, may have its name."""
        for _ in range(256):
            try:
                return _ip("link", "add", self._bridge, "type", "bridge")
            except subprocess.CalledProcessError as error:
                if b"exists" not in error.stderr:
                    raise
                self.number = (self.number + 1) % 256
        raise RuntimeError("256 networks of nodes are on this machine")

    def start(self, name: str) -> None:
        """Switch a node on, and wait until it answers."""
        number = self.names.index(name)
        boot = BOOT.format(
            first=300 + number * NUMBERS, name=name, python=sys.executable, shell=SHELL, folder=self.folder
        )
        hosts = f"mount --bind {self.folder}/hosts /etc/hosts\n"
        self._boots[name] = subprocess.Popen(
            ["unshare", "--net", "--pid", "--uts", "--ipc", "--mount", "--fork", "--kill-child", "--mount-proc",
             "sh", "-ec", f"read _\n{hosts}{boot}"], stdin=subprocess.PIPE,
        )  # fmt: skip
        process = self._boots[name]
        # Its network comes once it has namespaces of its own.
        _wait(lambda: _namespace(process.pid) not in ("", _namespace(os.getpid())))
        link, inner = self.link(name), f"mrw{self.number}-{number}"
        _ip("link", "add", link, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", str(process.pid))
        _ip("link", "set", link, "master", self._bridge, "up")
        inside = ["nsenter", "--target", str(process.pid), "--net", "ip"]
        subprocess.run([*inside, "link", "set", inner, "name", "eth0"], check=True)
        subprocess.run([*inside, "addr", "add", f"10.78.{self.number}.{number + 1}/24", "dev", "eth0"], check=True)
        subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.close()
        _wait(lambda: (self.folder / name).exists())

    def kill(self, name: str) -> None:
        """Switch a node off: everything in it is gone at once."""
        process = self._boots.pop(name, None)
        if process is None:
            return
        process.kill()  # --kill-child: its first process goes with it
        process.wait()
        (self.folder / name).unlink(missing_ok=True)
        link = self.link(name)
        # The network goes with the last process, a moment later.
        _wait(lambda: subprocess.run(["ip", "link", "del", link], capture_output=True).returncode != 0)

    def is_on(self, name: str) -> bool:
        """Whether the node was started and not killed."""
        return name in self._boots

    def link(self, name: str) -> str:
        """The interface of this machine at which a node's cable ends."""
        return f"mrv{self.number}-{self.names.index(name)}"

    def network(self, name: str) -> int:
        """A process in the network of a node."""
        return self._boots[name].pid

    def cut(self, name: str) -> None:
        """Pull a node's cable: nobody is told, packets are lost."""
        _ip("link", "set", self.link(name), "down")

    def command(self, name: str, *words: str) -> list[str]:
        """The command that runs ``words`` in a node."""
        return [str(self.rsh), name, *words]

    def pids(self, name: str) -> list[int]:
        """The processes of a node, numbered as seen from outside."""
        found = []
        space = self._pid_space(name)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if os.readlink(entry / "ns" / "pid") == space:
                        found.append(int(entry.name))
        return found

    def inhabitants(self, name: str) -> list[int]:
        """The same without the node's first process."""
        return [pid for pid in self.pids(name) if f"{SHELL.name} serve" not in arguments(pid)]

    def _pid_space(self, name: str) -> str:
        return os.readlink(f"/proc/{self._boots[name].pid}/ns/pid_for_children") if name in self._boots else ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def _wait(condition, seconds: float = 300.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a node did not come up, or did not go")
        time.sleep(0.005)
