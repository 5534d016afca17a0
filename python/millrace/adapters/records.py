"""Adapter of programs that stay alive and take records one by one (``millrace run --records``; ``docs/records.md``).

*Exactness.* The output is the answers to all records, in input order. It equals that of one process that gets all
records if no answer depends on the records before it; to check that, parts of the input are sent again beside other
records (``tests/cli/test_records.py``).
"""

from __future__ import annotations

import os

from millrace.adapters.generic import resolve_path_and_format
from millrace.adapters.joins import apply_asked_joins
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.tool_use import CostHint, InputUse, OutputUse, RecordProtocol, ToolUse, UserCommand

#: Environment variable that announces the record protocol to a program.
VARIABLE = "MILLRACE_RECORDS"


class RecordsAdapter:
    """``millrace run --records --input q.fa -- ./prog > answers.txt``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``millrace.adapters.adapter_base.ToolAdapter.understand_command``."""
        if len(command.inputs) > 1:
            raise RefusedError("--records with several --input", "name one; a record may be of several lines")
        typed = command.inputs[0] if command.inputs else "-"
        if not command.inputs and not command.stdin_is_data:
            raise RefusedError("--records: no input is named", "add --input FILE, or redirect a file: < FILE")
        path, form = resolve_path_and_format(typed, command)
        if form == "files":
            raise RefusedError(
                f"--records: {path}: files that are one record each are not sent", "give their names: --format lines"
            )
        if record_formats.has_header(form):
            raise RefusedError(
                f"{path}: records of format {form} have a header, which is not sent where they are given one by one",
                f"name a format without one, such as lines: {path}:lines",
            )
        files = [command.cwd / name for name in command.shared]
        for file in files:
            if not os.path.exists(file):
                raise RefusedError(f"--shared {file.name}: no such file", "check the path")
        return ToolUse(
            adapter="records",
            argv=command.argv,
            inputs=(InputUse(path=path, format=form, stdin=True),),
            outputs=apply_asked_joins((_build_output(command),), command.joins),
            databases=tuple(dict.fromkeys(files)),
            env={VARIABLE: "1"},
            cost=CostHint(startup_seconds=1e-4),
            served=RecordProtocol(),
            notes=("records: one process a slot stays alive and takes them one by one",),
        )


def _build_output(command: UserCommand) -> OutputUse:
    named = [name for name in command.outputs if name not in ("-", "/dev/stdout")]
    if len(named) > 1:
        raise RefusedError("--records with several --output", "the answers to the records are one output")
    if named and named[0] in command.argv:
        raise RefusedError(
            f"--records: --output {named[0]} stands in the arguments, but the answers to the records are the output",
            "leave it out of the arguments",
        )
    return OutputUse(name="out" if named else "stdout", path=named[0] if named else "-", stdout=True)


ADAPTER = RecordsAdapter()
