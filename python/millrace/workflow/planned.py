"""What is known of a phase before it begins."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from millrace.launch.allocation import Allocation
from millrace.plan.plan import Plan
from millrace.tools.base import EACH
from millrace.workflow.description import Phase, Workflow

#: What the job file says of a phase, among its `parts`.
SAID = "what the job file says of it"


@dataclass
class Planned:
    """One phase, and how it hangs together with the others."""

    phase: Phase
    #: What is to be run; None: that is planned once the phases before are done, or it is no command.
    plan: Plan | None = None
    #: What it reads while others write it, by the name of the phase that does.
    streams: dict[str, str] = field(default_factory=dict)
    #: Phases that end before this begins, and why.
    waits: dict[str, str] = field(default_factory=dict)
    #: Files, and folders of files, that it writes, as `norm` has them.
    outputs: tuple[str, ...] = ()
    #: Those of the outputs that are folders of files.
    folders: tuple[str, ...] = ()


def norm(path: str) -> str:
    """A path by which files are the same: without ``./`` and a ``/`` at the end.

    >>> norm("./a/../families/"), norm("aligned/{stem}.afa")
    ('families', 'aligned/{stem}.afa')
    """
    return os.path.normpath(path.removesuffix(EACH))


@dataclass
class Here:
    """The surroundings in which phases are planned."""

    cwd: Path
    environ: Mapping[str, str]
    #: The folder of the workflow.
    folder: Path
    #: Where commands run; None: on this node alone.
    nodes: Allocation | None = None
    slots: int = 0
    #: Whether modules of functions are loaded, which runs what is in them: to see before the start that they can be.
    loads_functions: bool = False
    #: Whether the job is done, and its files are those that it wrote.
    is_done: bool = False
    #: What was made so that it could be planned with, to be removed if nothing begins.
    made: list[Path] = field(default_factory=list)

    def undo(self) -> None:
        """Leave everything as it was."""
        for path in reversed(self.made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        self.made.clear()


def one_after_another(phases: Sequence[Planned]) -> None:
    """Let a command have all slots of several nodes, once all that it reads is whole."""
    commands = [planned for planned in phases if planned.phase.kind == "command"]
    for planned in commands:
        for output, name in planned.streams.items():
            planned.waits.setdefault(name, f"reads {output}, and on several nodes what is whole")
        planned.streams, planned.plan = {}, None
    for before, planned in pairwise(commands):
        planned.waits.setdefault(before.phase.name, "on several nodes one command has all slots")


def parts(flow: Workflow, cwd: Path) -> dict[str, dict[str, str]]:
    """What decides what the phases do, by phase: a resume goes on with nothing else.

    Returns:
        Digests of what the job file says, of the file of the function, and of files that it or a filter reads besides.
    """
    found = {}
    for phase in flow.phases:
        said = msgspec.json.encode([phase.kind, phase.job.command, phase.job.input, phase.job.output, phase.text,
                                    phase.after, phase.stdin, phase.stdout, phase.options])  # fmt: skip
        files = [phase.text.rpartition(":")[0], *phase.job.shared] if phase.kind != "command" else []
        contents = {name: (cwd / name).read_bytes() for name in files if (cwd / name).is_file()}
        found[phase.name] = {name: _digest(content) for name, content in {SAID: said, **contents}.items()}
    return found


def prints(found: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """One digest for each phase of `parts`."""
    return {name: _digest(msgspec.json.encode(each)) for name, each in found.items()}


def changed(was: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What is not as it was, phase by phase, in words.

    >>> changed({"a": {"f.py": "1", SAID: "2"}}, {"a": {"f.py": "3", SAID: "2"}, "b": {SAID: "4"}})
    ['phase a: f.py has changed', 'phase b is new']
    """
    found = []
    for phase in dict.fromkeys([*was, *now]):
        if phase not in now:
            found.append(f"phase {phase} is gone")
        elif phase not in was:
            found.append(f"phase {phase} is new")
        elif others := [
            each for each in dict.fromkeys([*was[phase], *now[phase]]) if was[phase].get(each) != now[phase].get(each)
        ]:
            found.append(f"phase {phase}: {', '.join(others)} has changed")
    return found


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
