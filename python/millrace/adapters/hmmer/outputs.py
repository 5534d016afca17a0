"""Outputs of a HMMER program, and how each is joined."""

from __future__ import annotations

from pathlib import Path

from millrace.adapters.adapter_base import is_stream_path
from millrace.adapters.hmmer.command_line import HmmerCommandLine, add_dashes
from millrace.core.errors import RefusedError
from millrace.core.tool_use import OutputArg, OutputUse, UserCommand

#: Name and join of each option that takes an output file.
OUTPUTS = {
    "o": ("out", "hmmer-report"),
    "A": ("alignment", "concat"),
    "tblout": ("tblout", "hmmer-table"),
    "domtblout": ("domtblout", "hmmer-table"),
    "pfamtblout": ("pfamtblout", "hmmer-sections"),
    "dfamtblout": ("dfamtblout", "hmmer-sections"),
    "aliscoresout": ("aliscoresout", "concat"),
    "hmmout": ("hmmout", "concat"),
}

#: Lines that differ between two serial runs, by join; ``--hmmout`` by name.
VOLATILE = {
    "hmmer-report": ("^# CPU time: .*$", "^# Mc/sec: .*$"),
    "hmmer-table": ("^# Date: .*$",),
    "hmmer-sections": ("^# Date: .*$",),
    "hmmout": ("^DATE  .*$",),
}


def find_outputs(
    command: UserCommand, parsed: HmmerCommandLine, added: str
) -> tuple[tuple[OutputUse, ...], dict[int, OutputArg]]:
    """Find the outputs and the indexes of their paths in argv. Without ``-o`` the report goes to standard output.

    Raises:
        RefusedError: Two outputs go to one file, or one goes to a device.
    """
    outputs: list[OutputUse] = []
    places: dict[int, OutputArg] = {}
    if parsed.get_value("o") is None:
        outputs.append(_describe_output("o", "-", added, stdout=True))
    taken: dict[Path, str] = {}
    for option in parsed.options:
        if option.name not in OUTPUTS or option.value == "/dev/null":
            continue
        path = command.cwd / option.value
        if is_stream_path(option.value) or path.is_fifo():
            hint = "leave -o away for standard output; give every other output a file of its own"
            raise RefusedError(f"{add_dashes(option.name)} {option.value} is not a regular file", hint)
        key = path.resolve()
        if key in taken:
            raise RefusedError(
                f"{add_dashes(taken[key])} and {add_dashes(option.name)} both write to {option.value}",
                "give every output a file of its own",
            )
        taken[key] = option.name
        places[option.value_at] = OutputArg(index=len(outputs), prefix=option.prefix)
        outputs.append(_describe_output(option.name, option.value, added))
    return tuple(outputs), places


def _describe_output(option: str, path: str, added: str, *, stdout: bool = False) -> OutputUse:
    name, join = OUTPUTS[option]
    # A file that is named "-" is not standard output for HMMER.
    path = f"./{path}" if path == "-" and not stdout else path
    return OutputUse(
        name="stdout" if stdout else name,
        path=path,
        stdout=stdout,
        join=f"{join}:{added}" if added and join.startswith("hmmer-") else join,
        volatile=VOLATILE.get(name, VOLATILE.get(join, ())),
    )
