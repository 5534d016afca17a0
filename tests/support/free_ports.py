"""Ports for servers that take a number and no socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

#: None that the kernel gives to whoever connects, or asks for any.
NUMBERS = range(20_000, 32_000)


@contextmanager
def taken(n: int) -> Iterator[list[int]]:
    """Ports at which nobody listens, and which nobody else gets here until the end.

    Raises:
        RuntimeError: There are not so many.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for port in NUMBERS:
            held = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                held.bind(f"\0millrace-test-port-{port}")  # a name that goes with its process
                with socket.socket() as listening:
                    listening.bind(("", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == n:
                yield ports
                return
        raise RuntimeError("no ports are free")
