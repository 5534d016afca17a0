"""What the user says of joining the outputs of a program that Millrace does not know: ``--join [OUTPUT=]HOW``.

*Exactness.* A join takes away what a program writes once a start (a header, a footer) from all batches but one, and
only if it is the same in all of them; a batch that begins or ends otherwise stops the run
(``crates/millrace-core/src/join/frame.rs``). It changes no other byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from millrace import _core
from millrace.errors import RefusedError
from millrace.model import OutputUse

#: Each way, as the user writes it.
WAYS = {
    "concat": "concat",
    "header": "header[:N|:REGEX]",
    "footer": "footer[:N|:REGEX]",
    "csv": "csv",
    "sam": "sam",
    "jsonl": "jsonl",
    "xml": "xml:TAG",
}
#: Ways that one output may have both of.
_TOGETHER = {"header", "footer"}


def joined(outputs: Sequence[OutputUse], asked: Sequence[str]) -> tuple[OutputUse, ...]:
    """``outputs`` with the joins that the user asked for.

    Raises:
        RefusedError: There is no such output or way, or not for this output.
    """
    ways: dict[str, dict[str, str]] = {}
    for text in asked:
        output, how = _parse(text, outputs)
        if output.layout != "file":
            raise RefusedError(
                f"--join {text}: the files of {output.path} are kept as they are", "leave it out for this output"
            )
        of_output = ways.setdefault(output.name, {})
        name = how.partition(":")[0]
        if of_output and (name in of_output or {name, *of_output} != _TOGETHER):
            raise RefusedError(
                f"--join {text}: {_said(output)} has another: {next(iter(of_output.values()))}",
                "give one for each output; only header and footer go together",
            )
        of_output[name] = how
    return tuple(
        msgspec.structs.replace(output, join=_spec(ways[output.name])) if output.name in ways else output
        for output in outputs
    )


def ways(asked: Sequence[str]) -> set[str]:
    """The names of the ways in ``--join`` texts that may not be checked yet."""
    return {text.partition(":")[0].rpartition("=")[2] for text in asked}


def words(join: str) -> str:
    """A join as `joined` made it, in words."""
    return " and ".join(join.split("\n"))


def _said(output: OutputUse) -> str:
    return "standard output" if output.path == "-" else output.path


def _spec(ways: Mapping[str, str]) -> str:
    """See ``Frame::new``: header and footer stand on a line each, in this order whatever the user's was."""
    return "\n".join(ways[name] for name in sorted(ways, reverse=True))


def _parse(text: str, outputs: Sequence[OutputUse]) -> tuple[OutputUse, str]:
    """The output and the way of ``[OUTPUT=]HOW``."""
    if text.partition(":")[0] in WAYS:
        return _only(text, outputs), _checked(text, text)
    for output in sorted(outputs, key=lambda each: -len(each.path)):
        for name in ("-", "stdout", "/dev/stdout") if output.stdout else (output.path,):
            if text.startswith(f"{name}="):
                return output, _checked(text[len(name) + 1 :], text)
    before, equal, _ = text.partition("=")
    if equal and ":" not in before:
        names = ", ".join("-" if output.stdout else output.path for output in outputs)
        raise RefusedError(f"--join {text}: no output {before}", f"outputs are: {names} (- is standard output)")
    return _only(text, outputs), _checked(text, text)


def _only(text: str, outputs: Sequence[OutputUse]) -> OutputUse:
    """The output that is meant when none is named: the only file, or standard output if there is no file."""
    files = [output for output in outputs if not output.stdout]
    if len(files) > 1:
        raise RefusedError(
            f"--join {text}: there are {len(files)} outputs", f"say which one is meant: --join {files[0].path}={text}"
        )
    return next(iter(files), outputs[-1])


def _checked(how: str, text: str) -> str:
    name, colon, parameter = how.partition(":")
    if name not in WAYS:
        import difflib  # only for the refusal

        near = difflib.get_close_matches(name, WAYS, n=1)
        more = f"did you mean {WAYS[near[0]]}? " if near else ""
        raise RefusedError(f"--join {text}: no such way to join", f"{more}ways are: {', '.join(WAYS.values())}")
    if colon and not parameter:
        raise RefusedError(f"--join {text}: nothing behind the colon", f"write {WAYS[name]}")
    if "\n" in how:
        raise RefusedError(f"--join {text}: a line end", "an expression is matched with one line at a time")
    try:
        _core.join(how, [])
    except UnicodeEncodeError as error:
        raise RefusedError(f"--join {text}: not UTF-8", "write other bytes as in: (?-u:\\xe9)") from error
    except ValueError as error:
        what = {
            "header": "neither a number of lines (1 to 10000) nor a regular expression",
            "footer": "neither a number of lines (1 to 10000) nor a regular expression",
            "xml": "not the name of an element",
        }.get(name, f"{name} takes nothing behind it")
        raise RefusedError(f"--join {text}: {what}", f"write {WAYS[name]}, in single quotes") from error
    return how
