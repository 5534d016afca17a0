"""The check whether the nodes of a job reach its first one by TCP: some firewalls let only a remote shell pass.

``python -m millrace.launch.reachability`` listens on the first node until its standard input ends, and prints port and
addresses; ``... PORT ADDRESS...`` connects from another node, as MPI does: to any port, at any address.
"""

from __future__ import annotations

import os

from millrace.host.python_launch import make_python_command, move_user_modules_last

if __name__ == "__main__":
    move_user_modules_last(os.environ)  # before anything is imported that may be there, too

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from millrace.launch import launch_commands
from millrace.launch.node_allocation import NodeAllocation

#: Seconds for one connection; and for all attempts of one node.
MAX_CONNECT_SECONDS, MAX_ANSWER_SECONDS = 3.0, 15.0

#: Most nodes that are asked: a firewall that blocks all of these blocks all.
MAX_ASKED_NODES = 32

#: Exit code of a node that does not reach the first one; any other code tells nothing.
UNREACHED = 4


def find_blocked_nodes(allocation: NodeAllocation, nodes: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Find the nodes that do not reach the first of ``nodes`` by TCP, with the reasons; empty: all do, or unknown."""
    if len(nodes) < 2:
        return {}
    own = make_python_command("-m", "millrace.launch.reachability")
    with _run_listener(launch_commands.build_node_command(allocation, nodes[0], own, environ), environ) as said:
        if not (words := said.split()) or not words[0].isdigit():
            return {}
        asked = {
            node: _start_process(
                launch_commands.build_node_command(allocation, node, [*own, words[0], nodes[0], *words[1:]], environ),
                environ,
            )
            for node in nodes[1 : MAX_ASKED_NODES + 1]
        }
        found = {node: _read_answer(process) for node, process in asked.items()}
    return {node: why for node, why in found.items() if why}


@contextlib.contextmanager
def _run_listener(words: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Run a listener on the first node until the context ends; yield its line of port and addresses."""
    process = _start_process(words, environ, subprocess.PIPE)
    assert process.stdin and process.stdout
    late = threading.Timer(MAX_ANSWER_SECONDS, process.kill)
    late.start()
    try:
        said = process.stdout.readline().decode(errors="replace")
        late.cancel()
        yield said
    finally:
        late.cancel()
        process.stdin.close()
        _read_answer(process)


def _start_process(
    words: Sequence[str], environ: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(environ), start_new_session=True
    )


def _read_answer(process: subprocess.Popen[bytes]) -> str:
    """Read the reason why a node does not reach the first one; empty: it does, or gives no answer."""
    assert process.stdout
    with process, contextlib.suppress(ValueError):
        try:
            process.wait(MAX_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.wait() == UNREACHED:
            return process.stdout.read().decode(errors="replace").strip()
    return ""


def list_local_addresses(proc: Path = Path("/proc/net")) -> list[str]:
    """List the addresses by which other machines may reach this one, from the kernel's tables."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        lines = (proc / "fib_trie").read_text().splitlines()
        for before, line in pairwise(lines):
            if "/32 host LOCAL" in line and not (address := before.split()[-1]).startswith("127."):
                found.append(address)
    with contextlib.suppress(OSError):
        for line in (proc / "if_inet6").read_text().splitlines():
            digits, _, _, scope = line.split()[:4]
            if scope == "00":  # global
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return list(dict.fromkeys(found))


def listen_until_stdin_ends() -> None:
    """Print a port and the addresses of this machine, and accept connections until standard input ends."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=dual) as server:
        print(server.getsockname()[1], *list_local_addresses(), flush=True)
        sys.stdin.buffer.read()


def find_connect_failure(port: int, addresses: Sequence[str]) -> str:
    """Connect to the addresses, one after the other; return why none is reached; empty: one is."""
    why = ""
    for address in addresses:
        try:
            socket.create_connection((address, port), MAX_CONNECT_SECONDS).close()
            return ""
        except OSError as error:
            why = why or (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error))
    return why or "no address"


def main(words: Sequence[str]) -> int:
    """Listen or connect, by the arguments; return the exit code."""
    if not words:
        listen_until_stdin_ends()
        return 0
    if why := find_connect_failure(int(words[0]), words[1:]):
        print(why, flush=True)
        return UNREACHED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
