"""Ways to join the outputs of batches: specifications for adapters, and ``--join`` of the user.

*Exactness.* A join removes text that a program writes once a start (a header, a footer) from all batches but one, and
only if it is the same in all of them; a batch that begins or ends otherwise stops the run
(``crates/millrace-core/src/join/frame.rs``). It changes no other byte. An adapter composes its joins of the same parts,
and of two whose exactness the adapter must ensure (``make_first_header_join``, ``make_restore_join``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from millrace import _core
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputUse, OutputUse

#: Each way, as the user writes it.
WAYS = {
    "concat": "concat",
    "header": "header[:N|:REGEX]",
    "footer": "footer[:N|:REGEX]",
    "totals": "totals:REGEX",
    "csv": "csv",
    "sam": "sam",
    "jsonl": "jsonl",
    "xml": "xml:TAG",
}
#: Pairs of ways that one output may combine.
_TOGETHER = ({"header", "footer"}, {"header", "totals"})

#: Joins for one tool only, and what they do; each has its own code in ``crates/millrace-core/src/join``.
OF_ONE_TOOL = {
    "blast-report": "banner once, closing statistics once, in the end",
    "blast-tabular": "rows, in which the N of Query_N runs on",
    "blast-comments": "the same with comments; a total of queries in the last line",
    "blast-xml": "one document, in which numbers run on",
    "blast-xml2": "one document, in which numbers run on",
    "blast-json": "one document, in which numbers run on",
    "blast-seqalign": "alignments, in which the N of Query_N runs on",
    "blast-seqalign-json": "the same in JSON",
    "blast-archive": "one archive a pass over the database, in which the N of Query_N runs on",
    "hmmer-report": "banner once, as many queries as records, `[ok]` once",
    "hmmer-table": "the header of the first query, a trailer once, whose date is the last",
    "hmmer-sections": "a trailer once, if there is one",
    "diamond-xml": "one document, in which numbers run on",
    "vina-log": "a head once, with the number of all ligands",
    "prodigal": "numbers of sequences run on, the first line of GFF once",
    "obabel-mol": "a line between molecules, not behind the last one",
    "obabel-pdb": "numbers of models run on, END once; one molecule alone has neither",
    "obabel-pdbqt": "numbers of models run on; one molecule alone has none",
    "obabel-cml": "one document; one molecule alone has no frame",
}

#: A blank line, behind which columns change, ends the run; added to another join.
UNBROKEN = "unbroken"
#: One batch after the other.
CONCAT = "concat"
#: SAM: its header once.
SAM = "sam"


def make_header_join(which: int | str = 1) -> str:
    """Make the join that keeps the first lines once: ``which`` lines, or all that match; the same in all batches."""
    return f"header:{which}"


def make_first_header_join(which: int | str = 1) -> str:
    """Make the join that keeps the first lines of the first batch; others may differ, as in the widths of columns."""
    return f"header-first:{which}"


def make_footer_join(which: int | str = 1) -> str:
    """Make the join that keeps the last lines once: ``which`` lines, or all that match; the same in all batches."""
    return f"footer:{which}"


def make_restore_join(added: str, text: str = "") -> str:
    """Make the join that restores the user's own command in header and footer, where Millrace has added options.

    In lines that match ``added``, group 1 becomes ``text``. Each batch must have such a line.
    """
    return f"restore:{added}\t{text}"


def combine_joins(*parts: str) -> str:
    """Combine parts into one join: a header, a footer, and the text to restore in them."""
    return "\n".join(parts)


def apply_asked_joins(outputs: Sequence[OutputUse], asked: Sequence[str]) -> tuple[OutputUse, ...]:
    """Return ``outputs`` with the joins of the user's ``--join`` options.

    Raises:
        RefusedError: There is no such output or way, or the way does not suit the output.
    """
    ways: dict[str, dict[str, str]] = {}
    for text in asked:
        output, how = _parse_asked_join(text, outputs)
        if output.layout != "file":
            raise RefusedError(
                f"--join {text}: the files of {output.path} are kept as they are", "leave it out for this output"
            )
        of_output = ways.setdefault(output.name, {})
        name = how.partition(":")[0]
        if of_output and (name in of_output or {name, *of_output} not in _TOGETHER):
            raise RefusedError(
                f"--join {text}: {_name_output(output)} has another: {next(iter(of_output.values()))}",
                "give one for each output; only a header and a footer, or totals, go together",
            )
        of_output[name] = how
    return tuple(
        msgspec.structs.replace(output, join=_format_spec(ways[output.name])) if output.name in ways else output
        for output in outputs
    )


def choose_default_join(inputs: Sequence[InputUse]) -> str:
    """Choose the join of outputs without ``--join``: the one that suits the format of the inputs."""
    names = (item.format or record_formats.find_format_by_suffix(item.path) for item in inputs)
    return next(
        (record_formats.FORMATS[name].join for name in names if name and record_formats.has_header(name)), CONCAT
    )


def list_asked_ways(asked: Sequence[str]) -> set[str]:
    """List the names of the ways in ``--join`` texts, which need not be checked yet."""
    return {text.partition(":")[0].rpartition("=")[2] for text in asked}


def describe_join(join: str) -> str:
    """Describe a join that ``apply_asked_joins`` made, in words."""
    return " and ".join(join.split("\n"))


def _name_output(output: OutputUse) -> str:
    return "standard output" if output.path == "-" else output.path


def _format_spec(ways: Mapping[str, str]) -> str:
    """Write a join as ``Frame::new`` reads it: header and footer on a line each, in this order."""
    return "\n".join(ways[name] for name in sorted(ways, reverse=True))


def _parse_asked_join(text: str, outputs: Sequence[OutputUse]) -> tuple[OutputUse, str]:
    """Split ``[OUTPUT=]HOW`` into output and way, and check both."""
    if text.partition(":")[0] in WAYS:
        return _find_only_output(text, outputs), check_join(text, text)
    for output in sorted(outputs, key=lambda each: -len(each.path)):
        for name in ("-", "stdout", "/dev/stdout") if output.stdout else (output.path,):
            if text.startswith(f"{name}="):
                return output, check_join(text[len(name) + 1 :], text)
    before, equal, _ = text.partition("=")
    if equal and ":" not in before:
        names = ", ".join("-" if output.stdout else output.path for output in outputs)
        raise RefusedError(f"--join {text}: no output {before}", f"outputs are: {names} (- is standard output)")
    return _find_only_output(text, outputs), check_join(text, text)


def _find_only_output(text: str, outputs: Sequence[OutputUse]) -> OutputUse:
    """Return the output of a text that names none: the only file, or standard output if there is no file."""
    files = [output for output in outputs if not output.stdout]
    if len(files) > 1:
        raise RefusedError(
            f"--join {text}: there are {len(files)} outputs", f"say which one is meant: --join {files[0].path}={text}"
        )
    return next(iter(files), outputs[-1])


def check_join(how: str, text: str) -> str:
    """Check that ``how`` is a way to join, as the user writes it in ``text``, and return it.

    Raises:
        RefusedError: It is none.
    """
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
            "totals": "not a regular expression with a group for each number",
            "xml": "not the name of an element",
        }.get(name, f"{name} takes nothing behind it")
        raise RefusedError(f"--join {text}: {what}", f"write {WAYS[name]}, in single quotes") from error
    return how
