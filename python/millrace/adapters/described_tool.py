"""Adapter of a program by its description (``millrace.adapters.tool_description``), without code of its own.

*Exactness.* As the description states; each shipped one states it in its file in ``described/``, and
``tests/exact/test_described_join.py`` compares bytes. The programs have more options than were compared, so parts of
each input are verified, as for an unknown tool.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from millrace.adapters import joins
from millrace.adapters.adapter_base import describe_record_output, expand_file_records
from millrace.adapters.call_rules import ProgramCall
from millrace.adapters.generic import ADAPTER as GENERIC
from millrace.adapters.known_refusals import find_refusal
from millrace.adapters.option_reader import CommandTokens, CommandWord, find_last_use, parse_count, scan_options
from millrace.adapters.program_identity import can_run_scripts, read_version_line
from millrace.adapters.tool_description import (
    DescribedDatabase,
    DescribedInput,
    DescribedNeed,
    DescribedOutput,
    DescribedRefusal,
    DescribedUse,
    ToolDescription,
    build_options,
)
from millrace.core.errors import RefusedError
from millrace.core.tool_use import CostHint, InputUse, OutputUse, ToolUse, UserCommand


class DescribedAdapter:
    """The adapter of one description.

    Args:
        description: The description.
        ours: Whether it is shipped with Millrace.
    """

    def __init__(self, description: ToolDescription, *, ours: bool) -> None:
        self.description, self.ours = description, ours

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``millrace.adapters.adapter_base.ToolAdapter.understand_command``."""
        about, program = self.description, Path(command.argv[0]).name
        if about.refused:
            raise RefusedError(f"{program} {about.refused}", about.instead)
        if command.inputs or command.outputs:
            return GENERIC.understand_command(command)  # inputs and outputs that the user names take precedence
        use, first = about.use, 1
        if about.verb:
            verb = next(iter(command.argv[1:]), "")
            if verb not in about.verb:
                return GENERIC.understand_command(command)
            use, first = about.merge_verb_use(verb), 2
        found = scan_options(command.argv, build_options(about, use), program, first=first)
        _check_use(use, found, program)
        return self._build_tool_use(use, found, command)

    def _build_tool_use(self, use: DescribedUse, found: Sequence[CommandWord], command: UserCommand) -> ToolUse:
        about, program = self.description, Path(command.argv[0]).name
        tokens = CommandTokens(command.argv)
        inputs = _build_inputs(use, found, command, tokens, program)
        several = [item.path for item in inputs if item.format == "files"]
        files = [name for typed in several for name in expand_file_records([typed], command) or ()]
        call = ProgramCall(
            program,
            command.argv[1:],
            joins.list_asked_ways((*use.stdout, *command.joins)),
            lambda: {item.format for item in inputs},
        )
        if not several and (known := find_refusal(call, is_described=not self.ours)):
            raise RefusedError(f"{program} {known[0]}", known[1])
        outputs = joins.apply_asked_joins(_build_outputs(use, found, command, tokens, files, inputs), command.joins)
        threads = find_last_use(found, _resolve_option_name(use, use.threads)) if use.threads else None
        return ToolUse(
            adapter=about.programs[0] if self.ours else f"file:{about.programs[0]}",
            argv=tokens.build_arguments(),
            inputs=inputs,
            outputs=outputs,
            databases=_list_databases(use, found, command),
            threads=max(1, parse_count(threads, program)) if threads else 1,
            cost=CostHint(startup_seconds=about.startup_seconds, max_records=1 if several else 0),
            failures_said=about.failures_said,
            version=read_version_line(command, *about.version)
            if about.version and not can_run_scripts(command.exe)
            else "",
            tested=about.tested,
            is_doubtful=self.ours and not several,
            notes=() if self.ours else (f"{program} is described by a file of yours",),
        )


def _resolve_option_name(use: DescribedUse, option: str) -> str:
    """Return the main name of an option, which may be an alias."""
    return dict(pair.split("=") for pair in use.names.split()).get(option, option)


def _list_given_options(use: DescribedUse, found: Sequence[CommandWord], options: str) -> list[CommandWord]:
    names = {_resolve_option_name(use, option) for option in options.split()}
    return [word for word in found if word.name in names]


def _check_use(use: DescribedUse, found: Sequence[CommandWord], program: str) -> None:
    for rule in use.refuse:
        _check_refusal(rule, use, found, program)
    for need in use.need:
        _check_need(need, use, found, program)
    _check_operands(use, found, program)


def _check_operands(use: DescribedUse, found: Sequence[CommandWord], program: str) -> None:
    operands = [word for word in found if not word.name]
    every: tuple[DescribedInput | DescribedOutput | DescribedDatabase, ...] = (*use.input, *use.output, *use.database)
    places = {*use.operands, *(each.operand for each in every)}
    wanted = [place.option.split()[0] for place in use.input if place.option]
    instead = "give one file at a time, or all in one: cat A B | millrace run -- ..."
    if wanted and not any(_find_place_word(place, use, found, program) for place in use.input):
        instead = f"if that is the input, name it with {'-' if len(wanted[0]) == 1 else '--'}{wanted[0]}"
    for number, word in enumerate(operands, start=1):
        if number not in places and number - len(operands) - 1 not in places:
            raise RefusedError(
                f"{program}: {word.value} is one file or word more than its description knows, and every task would have it",
                instead,
            )


def _check_refusal(rule: DescribedRefusal, use: DescribedUse, found: Sequence[CommandWord], program: str) -> None:
    if rule.unless_with and _has_option_value(_list_given_options(use, found, rule.unless_with), rule.with_value):
        return
    for word in _list_given_options(use, found, rule.option):
        if not (rule.unless and word.values and re.fullmatch(rule.unless, word.value)):
            raise RefusedError(f"{program}: {word.typed} {rule.why}", rule.instead)


def _check_need(need: DescribedNeed, use: DescribedUse, found: Sequence[CommandWord], program: str) -> None:
    if not _has_option_value(_list_given_options(use, found, need.option), need.value):
        raise RefusedError(f"{program} {need.why}", need.instead)


def _has_option_value(given: Sequence[CommandWord], value: str) -> bool:
    """Tell whether one of these options has a value that matches, or takes none."""
    return any(not value or not word.values or re.fullmatch(value, word.value) for word in given)


def _find_place_word(
    place: DescribedInput | DescribedOutput | DescribedDatabase,
    use: DescribedUse,
    found: Sequence[CommandWord],
    program: str,
) -> CommandWord | None:
    """Return the word for an input, output or database; None: the command has none."""
    if place.option:
        given = _list_given_options(use, found, place.option)
        if len(given) > 1 and given[0].typed != given[1].typed:
            raise RefusedError(f"{program}: {given[0].typed} and {given[1].typed} are both given", "give one of them")
        if len(given) > 1:
            raise RefusedError(f"{program}: {given[1].typed} is given twice", "give it once")
        return given[0] if given else None
    operands = [word for word in found if not word.name]
    at = place.operand - 1 if place.operand > 0 else len(operands) + place.operand
    return operands[at] if place.operand and 0 <= at < len(operands) else None


def _check_one_file(word: CommandWord, command: UserCommand, program: str) -> None:
    names = word.value.split(",")
    if len(names) > 1 and all((command.cwd / name).is_file() for name in names):
        raise RefusedError(
            f"{program}: {word.typed} {word.value} are several files, which are not cut together",
            "give one at a time, or all in one: cat A B | millrace run -- ...",
        )


def _build_inputs(
    use: DescribedUse, found: Sequence[CommandWord], command: UserCommand, tokens: CommandTokens, program: str
) -> tuple[InputUse, ...]:
    inputs: list[InputUse] = []
    for place in use.input:
        word = _find_place_word(place, use, found, program)
        if word is None or word.value == "-":
            continue
        _check_one_file(word, command, program)
        form = command.format or place.format
        if place.each_file or place.why_not_one:
            names = expand_file_records([word.value], command)
            if names is None and place.why_not_one:
                raise RefusedError(
                    f"{program} {place.why_not_one}",
                    f"put each into a file of its own, and name the folder in the place of {word.value}",
                )
            if names is not None:
                tokens.mark_input(word, len(inputs))
                inputs.append(InputUse(path=word.value, format="files"))
                continue
        tokens.mark_input(word, len(inputs))
        inputs.append(InputUse(path=word.value, format=form))
    if not inputs:
        if not command.stdin_is_data or any(place.why_not_one for place in use.input):
            raise RefusedError(f"{program}: no input that can be cut is named", "name a file of records")
        forms = [place.format for place in use.input if place.format]
        inputs.append(InputUse(path="-", format=command.format or next(iter(forms), ""), stdin=True))
    return tuple(inputs)


def _build_outputs(
    use: DescribedUse,
    found: Sequence[CommandWord],
    command: UserCommand,
    tokens: CommandTokens,
    files: Sequence[str],
    inputs: Sequence[InputUse],
) -> tuple[OutputUse, ...]:
    outputs: list[OutputUse] = []
    join = joins.choose_default_join(inputs)
    for place in use.output:
        word = _find_place_word(place, use, found, Path(command.argv[0]).name)
        if word is None or word.value in ("-", "/dev/null"):
            continue
        tokens.mark_output(word, len(outputs))
        name = place.option.split()[0] if place.option else f"operand{place.operand}"
        if files:
            outputs.append(describe_record_output(name, word.value, files, command))
        else:
            outputs.append(OutputUse(name=name, path=word.value, join=joins.combine_joins(*place.join or (join,))))
    outputs.append(OutputUse(name="stdout", path="-", stdout=True, join=joins.combine_joins(*use.stdout or (join,))))
    return tuple(outputs)


def _glob_beside(pattern: str, path: str) -> list[str]:
    """List the files that match a pattern in which ``{}`` stands for a path."""
    return sorted(glob.glob(pattern.replace("{}", glob.escape(path))))


def _list_databases(use: DescribedUse, found: Sequence[CommandWord], command: UserCommand) -> tuple[Path, ...]:
    paths: list[Path] = []
    for place in use.database:
        word = _find_place_word(place, use, found, Path(command.argv[0]).name)
        if word is None:
            continue
        whole = os.path.join(command.cwd, word.value.removeprefix(place.prefix))
        there = _glob_beside(place.files, whole) if place.files else [whole]
        if place.refused_with and _glob_beside(place.refused_with, whole):
            raise RefusedError(f"{word.value} {place.why}", place.instead)
        if not there or not os.path.exists(there[0]):
            raise RefusedError(f"{word.value}: no such file", f"check what {word.typed} names")
        paths += map(Path, there)
    return tuple(paths)
