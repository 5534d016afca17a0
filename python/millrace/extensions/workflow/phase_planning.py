"""Planning of phases: dependencies between them, and refusals before any begins.

Outputs are refused for conflicts, existing files and wrong order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from millrace.adapters import registry
from millrace.core import replica_rules
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.job import JobSpec
from millrace.core.record_formats import COMPRESSED
from millrace.core.tool_use import InputArg, OutputUse
from millrace.extensions.workflow import filter_execution
from millrace.extensions.workflow.filter_input import check_format, split_format
from millrace.extensions.workflow.planned_phases import (
    PlannedPhase,
    WorkflowContext,
    normalise_path,
    serialise_commands,
)
from millrace.extensions.workflow.workflow_description import (
    PhaseDescription,
    WorkflowDescription,
    check_function_exists,
)
from millrace.planning import run_plan as planner
from millrace.planning.program_lookup import find_program
from millrace.planning.run_plan import RunPlan


def check_outputs(planned: PlannedPhase, earlier: Sequence[PlannedPhase], here: WorkflowContext) -> None:
    """Check the outputs of a phase against those of earlier phases, its own inputs and existing files.

    Raises:
        RefusedError: Another phase writes it too, the phase itself reads it, or it is a folder with files.
    """
    for each in earlier:
        if same := sorted({*planned.outputs} & {*each.outputs}):
            raise RefusedError(f"{same[0]} is written by phase {each.phase.name} too", "give each phase its own output")
    inputs = (
        {normalise_path(split_format(each, "")[0]) for each in planned.phase.job.input}
        if planned.phase.kind != "command"
        else set()
    )
    if same := sorted({*planned.outputs} & inputs):
        raise RefusedError(f"{same[0]} is both input and output", "write to another file")
    for folder in planned.folders:
        path = here.cwd / folder
        if (
            path.is_dir()
            and folder != "."
            and not here.folder.exists()
            and not here.is_done
            and any(not name.startswith(".") for name in os.listdir(path))
        ):
            raise RefusedError(
                f"{folder}/: there are files in it already, which later phases would take for this one's",
                f"empty it first: rm -r {folder}",
            )


def check_order(refused: RefusedError, phase: PhaseDescription, later: Sequence[PhaseDescription], cwd: Path) -> None:
    """Replace the refusal of a missing file by a clearer one if a later phase writes that file.

    Args:
        refused: Why the phase cannot be run.

    Raises:
        RefusedError: A later phase writes a file named in ``refused``.
    """
    words = {normalise_path(word) for word in phase.reads}
    for each in later:
        for path in filter(None, (*each.job.output, each.stdout)):
            if normalise_path(path) in words and path in refused.message and not (cwd / path).exists():
                raise RefusedError(
                    f"{path} is not there, and phase {each.name}, which writes it, comes later in the file",
                    f"move [phase.{each.name}] before it; phases that read what each other writes cannot be run",
                ) from refused


#: Adapters that need not read the input to plan a command.
STREAMING = ("blast", "generic", "hmmer", "mafft", "muscle")


def plan_phases(flow: WorkflowDescription, here: WorkflowContext) -> list[PlannedPhase]:
    """Plan all phases; commands that wait for others get their plan later.

    Raises:
        MillraceError: A phase cannot be run; files made for planning are removed.
    """
    found: list[PlannedPhase] = []
    try:
        for number, phase in enumerate(flow.phases, 1):
            with _name_phase_in_errors(phase):
                try:
                    planned = (
                        _plan_command_phase(phase, found, here)
                        if phase.kind == "command"
                        else _plan_filter_phase(phase, found, here)
                    )
                except RefusedError as error:
                    check_order(error, phase, flow.phases[number:], here.cwd)
                    raise
                check_outputs(planned, found, here)
            found.append(planned)
    except BaseException:
        here.remove_made_paths()
        raise
    if here.nodes:
        serialise_commands(found)
    return found


@contextmanager
def _name_phase_in_errors(phase: PhaseDescription) -> Iterator[None]:
    """Add the name of the phase to the messages of errors."""
    try:
        yield
    except MillraceError as error:
        name = f"phase {phase.name}: "
        if not error.message.startswith(name) and f": {name}" not in error.message:
            error.message = name + error.message
            error.args = (error.message, *error.args[1:])
        raise


def _find_sources(phase: PhaseDescription, earlier: Sequence[PlannedPhase]) -> dict[str, str]:
    """Return the outputs of earlier phases that this one names, each with the name of its phase."""
    words = {normalise_path(word) for word in phase.reads}
    return {output: each.phase.name for each in earlier for output in each.outputs if output in words}


def _find_ended_phases(phase: PhaseDescription, earlier: Sequence[PlannedPhase]) -> set[str]:
    """Return the phases that have ended when this one begins, because of ``after``."""
    found, names = set(phase.after), list(phase.after)
    while names:
        name = names.pop()
        more = {each for item in earlier if item.phase.name == name for each in (*item.waits, *item.streams.values())}
        names += more - found
        found |= more
    return found


def _plan_command_phase(
    phase: PhaseDescription, earlier: Sequence[PlannedPhase], here: WorkflowContext
) -> PlannedPhase:
    """Plan a phase that is a command."""
    over = _find_ended_phases(phase, earlier)
    streams = {output: name for output, name in _find_sources(phase, earlier).items() if name not in over}
    planned = PlannedPhase(phase, streams=streams, waits=dict.fromkeys(phase.after, "after"))
    _wait_for_unplanned(planned, earlier)
    if planned.waits:
        _check_program(phase, here)
    else:
        _plan_with_streams(planned, streams, earlier, here)
    planned.outputs, planned.folders = _find_outputs(planned)
    return planned


def _check_program(phase: PhaseDescription, here: WorkflowContext) -> None:
    """Check that the program of a phase exists on this machine.

    Raises:
        MillraceError: It does not.
    """
    find_program(phase.job.find_program(os.uname().machine), here.cwd, here.environ, phase.job.command)


def _plan_with_streams(
    planned: PlannedPhase, streams: dict[str, str], earlier: Sequence[PlannedPhase], here: WorkflowContext
) -> None:
    """Plan a command whose inputs are still empty; let it wait for inputs that its tool reads whole."""
    phase = planned.phase
    if streams and not can_read_growing_input(phase.job.command[0]):
        for output in list(streams):
            planned.waits[streams.pop(output)] = f"{phase.job.command[0]} looks at {output} before it begins"
        _check_program(phase, here)
        return
    _create_empty_outputs(streams, earlier, here)
    try:
        plan = make_phase_plan(phase, phase.job, streams, here)
    except RefusedError as error:
        if not streams:
            raise
        names = ", ".join(f'"{name}"' for name in dict.fromkeys(streams.values()))
        hint = f"{error.hint}; if the tool reads {next(iter(streams))} whole, say: after = [{names}]"
        raise RefusedError(error.message, hint) from error
    for output in [output for output in streams if not is_output_cut(plan, output)]:
        planned.waits[streams.pop(output)] = f"reads {output} whole"
    if not planned.waits:
        planned.plan, here.slots = plan, max(here.slots, plan.slots)


def can_read_growing_input(program: str) -> bool:
    """Tell whether the adapter of a program can plan a command whose input still grows."""
    kind = (
        type(registry.find_adapter(Path(program).name)).__module__.removeprefix("millrace.adapters.").partition(".")[0]
    )
    return kind in STREAMING


def _wait_for_unplanned(planned: PlannedPhase, earlier: Sequence[PlannedPhase]) -> None:
    """Add waits for unplanned phases, whose outputs are unknown, if both phases name the same file."""
    words = {normalise_path(word) for word in planned.phase.reads if not word.startswith("-")}
    for each in earlier:
        if each.phase.kind == "command" and not each.plan and each.phase.name not in planned.streams.values():
            theirs = {normalise_path(word) for word in each.phase.reads if not word.startswith("-")}
            if common := sorted(words & theirs):
                planned.waits.setdefault(each.phase.name, f"both name {common[0]}")


def _create_empty_outputs(streams: Mapping[str, str], earlier: Sequence[PlannedPhase], here: WorkflowContext) -> None:
    """Create missing outputs of earlier phases, empty: a plan checks them, and a filter follows them."""
    folders = {folder for each in earlier for folder in each.folders}
    for output in streams:
        path = here.cwd / output
        if not path.exists():
            here.made.append(path)
            path.mkdir() if output in folders else path.touch()


def make_phase_plan(
    phase: PhaseDescription, job: JobSpec, streams: Mapping[str, str], here: WorkflowContext
) -> RunPlan:
    """Plan the run of a command phase.

    Raises:
        MillraceError: It cannot be run.
    """
    if replica_rules.has_url_arguments((*job.command[1:], *job.input, *job.shared, *job.output)):
        raise RefusedError("phases read and write files, not URLs", "fetch them first: millrace data stage, or curl")
    inputs = tuple(_add_format(each, job, streams) for each in job.input)
    job = msgspec.structs.replace(
        job, input=inputs, run_dir=str(here.folder / phase.name), keep_run_dir=True, fresh=False, progress="none",
        atomic_output=False,  # the next phase reads it while it grows
    )  # fmt: skip
    with redirect_standard_input(phase, streams, here.cwd):
        plan = planner.make_plan(job, here.cwd, here.environ, growing=frozenset(streams))
    return msgspec.structs.replace(plan, listed=False)


def _add_format(typed: str, job: JobSpec, streams: Mapping[str, str]) -> str:
    """Add the job's format to a growing input, which has no bytes yet to detect it from."""
    return f"{typed}:{job.format}" if normalise_path(typed) in streams and job.format else typed


@contextmanager
def redirect_standard_input(phase: PhaseDescription, streams: Mapping[str, str], cwd: Path) -> Iterator[None]:
    """Replace standard input by that of the phase while the context lasts, for planning."""
    with ExitStack() as stack:
        if normalise_path(phase.stdin) in streams and phase.stdin:
            end, other = os.pipe()
            os.close(other)
        else:
            try:
                end = os.open(cwd / (phase.stdin or os.devnull), os.O_RDONLY)
            except OSError as error:
                raise RefusedError(f"{phase.stdin}: {error.strerror}", "check the path of stdin") from error
        stack.callback(os.close, end)
        try:
            before = os.dup(0)
        except OSError:
            before = os.open(os.devnull, os.O_RDONLY)  # it was closed
        stack.callback(os.close, before)
        os.dup2(end, 0)
        stack.callback(os.dup2, before, 0)
        yield


def is_output_cut(plan: RunPlan, output: str) -> bool:
    """Tell whether a run cuts this file, or takes the files of this folder one by one, and never reads it whole."""
    cut = [
        number for number, item in enumerate(plan.use.inputs) if normalise_path(item.path) == output or item.path == "-"
    ]
    whole = [
        part
        for token in plan.use.argv
        if isinstance(token, str) for part in (token, token.partition("=")[2]) if part
    ]  # fmt: skip
    in_arguments = any(isinstance(token, InputArg) and token.index in cut for token in plan.use.argv)
    read = any(normalise_path(str(path)) == output for path in plan.use.databases)
    return (
        bool(cut)
        and not read
        and (in_arguments or plan.use.inputs[cut[0]].path == "-")
        and output not in map(normalise_path, whole[1:])
    )


def _find_outputs(planned: PlannedPhase) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the known outputs of a phase, and those of them that are folders."""
    phase = planned.phase
    files = [normalise_path(phase.stdout)] if phase.stdout else []
    folders: list[str] = []
    uses: Sequence[OutputUse] = planned.plan.use.outputs if planned.plan else ()
    typed = [(each.path, each.layout) for each in uses] or [
        (path, "record" if "{" in path else "directory" if path.endswith("/") else "file") for path in phase.job.output
    ]
    for path, layout in typed:
        if layout == "record":
            folders.append(normalise_path(os.path.dirname(path) or "."))
        elif path != "-":
            (folders if layout == "directory" else files).append(normalise_path(path))
    return (*files, *folders), tuple(folders)


def _plan_filter_phase(phase: PhaseDescription, earlier: Sequence[PlannedPhase], here: WorkflowContext) -> PlannedPhase:
    """Plan a phase that is a filter or function."""
    source, _ = split_format(phase.job.input[0], phase.job.format)
    whole = phase.kind == "python" and source.endswith(COMPRESSED)  # the function gets the unpacked records
    streams = {
        output: by
        for output, by in _find_sources(phase, earlier).items()
        if output == normalise_path(source) and not whole
    }
    planned = PlannedPhase(phase, streams=streams, waits=dict.fromkeys(phase.after, "after"))
    for output, by in _find_sources(phase, earlier).items():
        if output not in streams:
            planned.waits.setdefault(by, f"reads {output} whole")
    _wait_for_unplanned(planned, earlier)
    if not streams and not planned.waits and not (here.cwd / source).exists():
        raise RefusedError(f"{source}: no such file", "check the path of the input")
    output = phase.job.output[0]
    if not (parent := (here.cwd / output.rstrip("/")).parent).is_dir():
        raise RefusedError(f"{output}: no such folder {parent}", f"make it with: mkdir -p {parent}")
    if phase.kind == "python":
        check_format(phase.job.input[0], phase.job.format)
        (filter_execution.load_function if here.loads_functions else check_function_exists)(phase.text, here.cwd)
    _create_empty_outputs(streams, earlier, here)
    planned.outputs = (normalise_path(output),)
    planned.folders = planned.outputs if output.endswith("/") else ()
    return planned
