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

from millrace.core.wait_loop import wait_until
from millrace.host import work_places
from millrace.host.python_launch import make_python_command
from millrace.launch import launch_commands, sweep
from millrace.launch.node_allocation import NodeAllocation

#: Seconds without an answer after which a node counts as lost.
MAX_ANSWER_SECONDS = 8.0

#: The same once half of the nodes have answered: at least so long, and a multiple of their median time.
MIN_ANSWER_SECONDS, MAX_ANSWER_TIME_RATIO = 5.0, 4.0

#: Seconds between polls for answers.
POLL_INTERVAL_SECONDS = 0.01

#: Most nodes that are asked at the same time.
MAX_NODES_AT_ONCE = 64


class SweepAnswers(NamedTuple):
    """The answers to the sweep of all nodes."""

    #: Nodes that answered, and see the file.
    alive: tuple[str, ...]
    #: Nodes that answered, and do not see it.
    lacking: tuple[str, ...]


def sweep_all_nodes(
    allocation: NodeAllocation, nodes: Sequence[str], token: str, environ: Mapping[str, str], file: Path | None = None
) -> SweepAnswers:
    """Kill the processes that carry ``token``, here and on all ``nodes``; return the answers in the order of ``nodes``.

    Args:
        file: A file that nodes see if they share its folder; None: not checked.
    """
    # This node first: a launcher has to end before the processes that it has started elsewhere.
    work = work_places.read_wanted_place(environ)
    sweep.sweep_this_node(token, work)
    return _SweepSurvey(allocation, nodes, f"{token}\n{work}\n{file or ''}\n", environ).collect_answers()


class _SweepSurvey:
    """The question to all nodes, ``MAX_NODES_AT_ONCE`` at a time."""

    def __init__(self, allocation: NodeAllocation, nodes: Sequence[str], told: str, environ: Mapping[str, str]) -> None:
        self._allocation, self._nodes, self._told, self._environ = allocation, nodes, told, environ
        self._waiting = deque(nodes)
        #: Nodes that are being asked: the process that does so, and its start.
        self._asked: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        #: Seconds until each answered.
        self._answered: dict[str, float] = {}
        self._lacking: set[str] = set()

    def collect_answers(self) -> SweepAnswers:
        """Wait until all nodes have answered or count as lost."""
        self._ask_next_nodes()
        wait_until(self._is_survey_over, nap=POLL_INTERVAL_SECONDS)
        there = [node for node in self._nodes if node in self._answered]
        return SweepAnswers(
            tuple(node for node in there if node not in self._lacking),
            tuple(node for node in there if node in self._lacking),
        )

    def _ask_next_nodes(self) -> None:
        while self._waiting and len(self._asked) < MAX_NODES_AT_ONCE:
            node = self._waiting.popleft()
            if process := _start_sweep(self._allocation, node, self._told, self._environ):
                self._asked[node] = process, time.monotonic()

    def _is_survey_over(self) -> bool:
        answered, now = self._answered, time.monotonic()
        # Once most nodes have answered, the missing ones are lost rather than slow.
        are_most = len(answered) >= len(self._nodes) / 2
        quick = sorted(answered.values())[len(answered) // 2] if answered and are_most else MAX_ANSWER_SECONDS
        patience = min(MAX_ANSWER_SECONDS, max(MIN_ANSWER_SECONDS, MAX_ANSWER_TIME_RATIO * quick))
        for node, (process, begun) in list(self._asked.items()):
            if process.poll() is None and now - begun < patience:
                continue
            del self._asked[node]
            if process.poll() in (0, sweep.LACKS):
                answered[node] = now - begun
                if process.returncode:
                    self._lacking.add(node)
            else:
                _kill_sweep(process)
        self._ask_next_nodes()
        return not (self._waiting or self._asked)


def _start_sweep(
    allocation: NodeAllocation, node: str, told: str, environ: Mapping[str, str]
) -> subprocess.Popen[bytes] | None:
    words = launch_commands.build_node_command(
        allocation, node, make_python_command("-m", "millrace.launch.sweep"), environ
    )
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


def _kill_sweep(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
