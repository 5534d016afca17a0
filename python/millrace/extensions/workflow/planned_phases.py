"""Planned phases, the context of planning, and digests that identify a workflow."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from millrace.adapters.adapter_base import EACH
from millrace.extensions.workflow.workflow_description import PhaseDescription, WorkflowDescription
from millrace.launch.node_allocation import NodeAllocation
from millrace.planning.run_plan import RunPlan

#: Name of the job file's part among the digests of ``digest_phase_parts``.
SAID = "what the job file says of it"


@dataclass
class PlannedPhase:
    """A phase with its plan and its dependencies."""

    phase: PhaseDescription
    #: Plan of the run; None: planned after earlier phases have ended, or the phase is no command.
    plan: RunPlan | None = None
    #: Inputs read while another phase writes them: output to name of that phase.
    streams: dict[str, str] = field(default_factory=dict)
    #: Phases that must end before this one begins, with the reason.
    waits: dict[str, str] = field(default_factory=dict)
    #: Files and folders of files that it writes, normalised by ``normalise_path``.
    outputs: tuple[str, ...] = ()
    #: The outputs that are folders of files.
    folders: tuple[str, ...] = ()


def normalise_path(path: str) -> str:
    """Return a path in the form in which outputs and inputs are compared: without ``./``, ``..`` and a final ``/``.

    >>> normalise_path("./a/../families/"), normalise_path("aligned/{stem}.afa")
    ('families', 'aligned/{stem}.afa')
    """
    return os.path.normpath(path.removesuffix(EACH))


@dataclass
class WorkflowContext:
    """The folders, environment and nodes with which phases are planned and run."""

    cwd: Path
    environ: Mapping[str, str]
    #: The folder of the workflow.
    folder: Path
    #: Nodes that run the commands; None: this node alone.
    nodes: NodeAllocation | None = None
    #: Arguments of the ranks on these nodes; empty: those of this process.
    rank_words: tuple[str, ...] = ()
    slots: int = 0
    #: Whether to load modules of functions when planning, which runs their code, to find errors before the start.
    loads_functions: bool = False
    #: Whether the job was done before and its outputs are unchanged.
    is_done: bool = False
    #: Empty files and folders made for planning, removed if nothing begins.
    made: list[Path] = field(default_factory=list)

    def remove_made_paths(self) -> None:
        """Remove the files and folders that were made for planning."""
        for path in reversed(self.made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        self.made.clear()


def serialise_commands(phases: Sequence[PlannedPhase]) -> None:
    """Make commands wait for each other, so that each has all slots of the nodes and reads complete inputs."""
    commands = [planned for planned in phases if planned.phase.kind == "command"]
    for planned in commands:
        for output, name in planned.streams.items():
            planned.waits.setdefault(name, f"reads {output}, and on several nodes what is whole")
        planned.streams, planned.plan = {}, None
    for before, planned in pairwise(commands):
        planned.waits.setdefault(before.phase.name, "on several nodes one command has all slots")


def digest_phase_parts(flow: WorkflowDescription, cwd: Path) -> dict[str, dict[str, str]]:
    """Return, by phase, digests of all that determines its result besides its input data; a resume needs equal ones.

    Returns:
        Digests of the phase's text in the job file, of the file of its function, and of shared files of a filter or
        function.
    """
    found = {}
    for phase in flow.phases:
        said = msgspec.json.encode([phase.kind, phase.job.command, phase.job.input, phase.job.output, phase.text,
                                    phase.after, phase.stdin, phase.stdout, phase.options])  # fmt: skip
        files = [phase.text.rpartition(":")[0], *phase.job.shared] if phase.kind != "command" else []
        contents = {name: (cwd / name).read_bytes() for name in files if (cwd / name).is_file()}
        found[phase.name] = {name: _digest_bytes(content) for name, content in {SAID: said, **contents}.items()}
    return found


def digest_phases(found: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return one digest for each phase of ``digest_phase_parts``."""
    return {name: _digest_bytes(msgspec.json.encode(each)) for name, each in found.items()}


def describe_changes(was: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for each phase that differs between two results of ``digest_phase_parts``.

    >>> describe_changes({"a": {"f.py": "1", SAID: "2"}}, {"a": {"f.py": "3", SAID: "2"}, "b": {SAID: "4"}})
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


def _digest_bytes(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
