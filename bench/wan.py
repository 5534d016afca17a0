"""A slow link between two nodes of one machine: delay and rate, in user space, as not every kernel has ``netem``. Root only.

Packets of two TUN devices wait for their turn on the wire, and then for the delay; what does not fit into the queue is dropped, as a
router does. So TCP has its real handshakes and windows.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Addresses of the two ends, in networks that nobody else is in.
NEAR, FAR = "10.79.0.1", "10.79.0.2"

#: See ``linux/if_tun.h``.
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000

#: Bytes of a packet on a fast link: what a process in user space carries is a matter of packets.
MTU = 1500
FAST_MTU = 9000

#: Bytes that a router keeps at least.
LEAST_QUEUE = 256 << 10

#: TCP's shortest wait before it sends again what was not acknowledged, in seconds; and so many packets must have time for their way. On a
#: link of some kbit/s a single packet takes longer than that, and all would be sent twice.
TCP_TIMEOUT_SECONDS, TIMEOUT_PACKETS = 0.2, 100


@contextmanager
def link(near: int, far: int, mbit: float, delay_ms: float) -> Iterator[None]:
    """A link between the networks of two processes.

    Args:
        mbit: Mbit/s in each direction.
        delay_ms: From one end to the other, in milliseconds.
    """
    words = [sys.executable, "-m", "bench.wan", str(near), str(far), "--mbit", str(mbit), "--delay", str(delay_ms)]
    with subprocess.Popen(words, cwd=Path(__file__).resolve().parent.parent, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("there is no link")
            yield
        finally:
            process.kill()


def _tun(name: str, pid: int, address: str, mtu: int, rate: float) -> int:
    """A device in the network of a process; its descriptor. ``rate`` is in bytes a second."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    inside = ["nsenter", "--target", str(pid), "--net", "ip"]
    for words in (
        ["ip", "link", "set", name, "netns", str(pid)],
        [*inside, "addr", "add", f"{address}/30", "dev", name],
        [*inside, "link", "set", name, "mtu", str(mtu), "txqueuelen", "10000", "up"],
    ):
        subprocess.run(words, check=True)
    if (timeout := TIMEOUT_PACKETS * mtu / rate) > TCP_TIMEOUT_SECONDS:
        route = [f"{NEAR.rpartition('.')[0]}.0/30", "dev", name, "rto_min", f"{timeout * 1000:.0f}ms"]
        subprocess.run([*inside, "route", "replace", *route], check=True)
    return descriptor


class _Direction:
    """Packets on their way from one device to the other."""

    def __init__(self, source: int, dest: int, rate: float, delay: float) -> None:
        self.source, self.dest, self._rate, self._delay = source, dest, rate, delay
        self._queue = max(LEAST_QUEUE, int(4 * delay * rate))
        self._free = 0.0
        self.packets: deque[tuple[float, bytes]] = deque()

    def take(self, now: float) -> None:
        """Let what has come wait for its turn."""
        for _ in range(64):
            try:
                packet = os.read(self.source, 65536)
            except BlockingIOError:
                return
            start = max(now, self._free)
            if (start - now) * self._rate > self._queue:
                continue  # dropped
            self._free = start + len(packet) / self._rate
            self.packets.append((self._free + self._delay, packet))

    def give(self, now: float) -> None:
        """Pass on whose time has come."""
        while self.packets and self.packets[0][0] <= now:
            try:
                os.write(self.dest, self.packets[0][1])
            except BlockingIOError:
                return
            self.packets.popleft()


def main() -> None:
    """Be the link until killed."""
    parser = argparse.ArgumentParser(prog="python -m bench.wan", description=__doc__)
    parser.add_argument("near", type=int, metavar="PID")
    parser.add_argument("far", type=int, metavar="PID")
    parser.add_argument("--mbit", type=float, required=True)
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS")
    asked = parser.parse_args()
    mtu = FAST_MTU if asked.mbit > 100 else MTU
    rate, delay = asked.mbit * 1e6 / 8, asked.delay / 1e3
    places = ((0, asked.near, NEAR), (1, asked.far, FAR))
    ends = [_tun(f"wan{os.getpid()}{k}", pid, ip, mtu, rate) for k, pid, ip in places]
    ways = [_Direction(ends[0], ends[1], rate, delay), _Direction(ends[1], ends[0], rate, delay)]
    print("ready", flush=True)
    while True:
        due = [way.packets[0][0] for way in ways if way.packets]
        readable, _, _ = select.select(ends, [], [], max(0.0, min(due) - time.monotonic()) if due else None)
        now = time.monotonic()
        for way in ways:
            if way.source in readable:
                way.take(now)
            way.give(time.monotonic())


if __name__ == "__main__":
    main()
