"""The inputs of packing: the plan of the command that made a result, and the files of the result."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from millrace.errors import MillraceError, RefusedError
from millrace.job import JobSpec
from millrace.launch.mpi_environment import remove_mpi_variables
from millrace.pack import codec
from millrace.plan import plan as planner
from millrace.plan.plan import RunPlan
from millrace.replicas import has_url_arguments
from millrace.tools import registry


def plan_result_command(argv: tuple[str, ...], cwd: Path, slots: int | None) -> RunPlan:
    """Plan the command that made a result, without its options for speed alone.

    Raises:
        MillraceError: The command is refused, or missing.
    """
    if not cwd.is_dir():
        raise RefusedError(f"{cwd}: is not there any more, where the command was run")
    if has_url_arguments(argv[1:]):
        raise RefusedError("the command names files by URLs, which do not travel", "name copies of them")
    family = codec.find_result_codec(registry.MODULES.get(Path(argv[0]).name, ""))
    if family:
        argv = tuple(family.drop_speed_options(argv))
    return planner.make_plan(
        JobSpec(command=argv, slots=slots, fragments="1", verify=0.0), cwd, remove_mpi_variables(os.environ)
    )


def find_named_results(argv: tuple[str, ...], results: tuple[Path, ...], cwd: Path, error: MillraceError) -> list[Path]:
    """Return the result files of a command that cannot be planned; ``error`` is the reason.

    Raises:
        MillraceError: No file is named, or one is missing.
    """
    known = codec.find_result_codec(registry.MODULES.get(Path(argv[0]).name, ""))
    found = [cwd / each for each in results]
    with suppress(RefusedError):
        found = found or [cwd / each for each in (known.list_output_paths(argv) if known else [])]
    if not found:
        raise RefusedError(error.message, "its result is packed as it is if it is named: millrace pack RESULT ...")
    if missing := [path for path in found if not path.is_file()]:
        raise RefusedError(f"{missing[0]}: no such file", "name the result: millrace pack RESULT ...") from error
    return found


def find_output_files(plan: RunPlan, results: tuple[Path, ...]) -> list[Path]:
    """Return the files with the outputs of the command, in its order.

    Raises:
        RefusedError: A file or its name is missing.
    """
    named = [plan.command.cwd / each.path if each.path != "-" else None for each in plan.use.outputs]
    if len(results) == len(named):
        named = [plan.command.cwd / each for each in results]
    elif results:
        raise RefusedError(
            f"the command writes {len(named)} outputs, and {len(results)} results are named",
            "name all in the order of the command's options, or none, if the command names its files",
        )
    found = []
    for path, use in zip(named, plan.use.outputs, strict=True):
        if path is None:
            raise RefusedError(
                f"the command writes {'its result' if use.name == 'stdout' else use.name} to standard output",
                "name the file that it went to: millrace pack RESULT ...",
            )
        if use.layout != "file" or not path.is_file():
            raise RefusedError(f"{path}: no such file", "name the result: millrace pack RESULT ...")
        found.append(path)
    return found
