"""The sweep of all nodes at once: kills processes that a job left, and finds the nodes that answer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from millrace.launch import command, sweep
from millrace.launch.allocation import Allocation
from millrace.own_python import python_command
from millrace.plan import workplace
from millrace.waiting import until

#: Seconds without an answer after which a node counts as lost.
ANSWER_SECONDS = 8.0

#: The same once half of the nodes have answered: at least so long, and a multiple of their median time.
LEAST, TIMES = 5.0, 4.0

#: Seconds between polls for answers.
LOOK_SECONDS = 0.01

#: Most nodes that are asked at the same time.
WIDTH = 64


class Answers(NamedTuple):
    """The answers to the sweep of all nodes."""

    #: Nodes that answered, and see the file.
    alive: tuple[str, ...]
    #: Nodes that answered, and do not see it.
    lacking: tuple[str, ...]


def sweep_all(
    allocation: Allocation, nodes: Sequence[str], token: str, environ: Mapping[str, str], file: Path | None = None
) -> Answers:
    """Kill the processes that carry ``token``, here and on all ``nodes``; return the answers in the order of ``nodes``.

    Args:
        file: A file that nodes see if they share its folder; None: not checked.
    """
    # This node first: a launcher has to end before the processes that it has started elsewhere.
    work = workplace.wanted_here(environ)
    sweep.sweep(token, work)
    return _Question(allocation, nodes, f"{token}\n{work}\n{file or ''}\n", environ).answers()


class _Question:
    """The question to all nodes, ``WIDTH`` at a time."""

    def __init__(self, allocation: Allocation, nodes: Sequence[str], told: str, environ: Mapping[str, str]) -> None:
        self._allocation, self._nodes, self._told, self._environ = allocation, nodes, told, environ
        self._waiting = deque(nodes)
        #: Nodes that are being asked: the process that does so, and its start.
        self._asked: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        #: Seconds until each answered.
        self._answered: dict[str, float] = {}
        self._lacking: set[str] = set()

    def answers(self) -> Answers:
        """Wait until all nodes have answered or count as lost."""
        self._ask_next()
        until(self._is_over, nap=LOOK_SECONDS)
        there = [node for node in self._nodes if node in self._answered]
        return Answers(
            tuple(node for node in there if node not in self._lacking),
            tuple(node for node in there if node in self._lacking),
        )

    def _ask_next(self) -> None:
        while self._waiting and len(self._asked) < WIDTH:
            node = self._waiting.popleft()
            if process := _ask(self._allocation, node, self._told, self._environ):
                self._asked[node] = process, time.monotonic()

    def _is_over(self) -> bool:
        answered, now = self._answered, time.monotonic()
        # Once most nodes have answered, the missing ones are lost rather than slow.
        are_most = len(answered) >= len(self._nodes) / 2
        quick = sorted(answered.values())[len(answered) // 2] if answered and are_most else ANSWER_SECONDS
        patience = min(ANSWER_SECONDS, max(LEAST, TIMES * quick))
        for node, (process, begun) in list(self._asked.items()):
            if process.poll() is None and now - begun < patience:
                continue
            del self._asked[node]
            if process.poll() in (0, sweep.LACKS):
                answered[node] = now - begun
                if process.returncode:
                    self._lacking.add(node)
            else:
                _end(process)
        self._ask_next()
        return not (self._waiting or self._asked)


def _ask(allocation: Allocation, node: str, told: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    words = command.on_node(allocation, node, python_command("-m", "millrace.launch.sweep"), environ)
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(environ),
            start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None
    assert process.stdin
    with suppress(OSError):  # the process has ended at once
        process.stdin.write(os.fsencode(told))
        process.stdin.close()
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
