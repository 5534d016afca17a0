"""Paths of a command that its tool prints in its output, by family.

A run may go on with the same files at other paths, in another folder, and with other names of outputs. The results of
earlier starts are used if none of the changed paths is in them. *In the frame* (a banner, a header, a trailer), a path is
that of the present command if the frame is that of a batch that was computed under it, as the joins of forms have it
(``crates/millrace-core/src/join``). *In each record*, a changed path means that nothing is used.

*Exactness.* Only the formats below are known; a family, or an output, that is not in the table counts as one that prints
everything in each record. ``tests/exact/test_moved_runs.py`` compares each with the serial command.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from millrace.core.tool_use import OutputUse, ToolUse

INPUT, OUTPUT, DATABASE, FOLDER = "input", "output", "database", "folder"

_NOTHING, _ALL = frozenset[str](), frozenset({INPUT, OUTPUT, DATABASE, FOLDER})


class PrintedPaths(NamedTuple):
    """The kinds of paths that outputs show."""

    frame: frozenset[str] = _NOTHING
    records: frozenset[str] = _NOTHING


#: Of an unknown program, nothing is known.
_UNKNOWN = PrintedPaths(records=_ALL)

#: Tools that print paths as they are typed, if at all, and never the folder.
_TYPED = PrintedPaths(records=_ALL - {FOLDER})


def _list_of_blast(use: ToolUse, _: OutputUse) -> PrintedPaths:
    """List those of BLAST: never the query file or an output; but for rows alone, the name of the database."""
    words = [word for word in use.argv if isinstance(word, str)]
    form = next((after for word, after in pairwise(words) if word.lstrip("-") == "outfmt"), "")
    return PrintedPaths() if form.split()[:1] in (["6"], ["10"]) else PrintedPaths(records=frozenset({DATABASE}))


def _list_of_hmmer(_: ToolUse, output: OutputUse) -> PrintedPaths:
    """List those of HMMER: banner and trailer have all paths, and the trailer also the folder."""
    if not output.join.startswith("hmmer-"):
        return _UNKNOWN
    return PrintedPaths(frame=_ALL - {FOLDER} if output.join.startswith("hmmer-report") else _ALL)


def _list_of_infernal(_: ToolUse, output: OutputUse) -> PrintedPaths:
    """List those of Infernal, which are as HMMER's."""
    if output.name == "tblout":
        return PrintedPaths(frame=_ALL)
    return PrintedPaths(frame=_ALL - {FOLDER}) if output.name in ("stdout", "out") else _UNKNOWN


def _list_of_minimap2(_: ToolUse, output: OutputUse) -> PrintedPaths:
    """List those of minimap2: the line ``@PG`` of SAM has the command line; PAF has no path."""
    return PrintedPaths() if output.join == "concat" else PrintedPaths(frame=_ALL - {FOLDER})


def _list_of_diamond(_: ToolUse, output: OutputUse) -> PrintedPaths:
    """List those of DIAMOND: headers have the command line, XML the name of the database, and rows no path."""
    if output.join == "diamond-xml":
        return PrintedPaths(records=frozenset({DATABASE}))
    return PrintedPaths() if output.join == "concat" else PrintedPaths(frame=_ALL - {FOLDER})


_FAMILIES: dict[str, Callable[[ToolUse, OutputUse], PrintedPaths]] = {
    "blast": _list_of_blast,
    "hmmer": _list_of_hmmer,
    "infernal": _list_of_infernal,
    "minimap2": _list_of_minimap2,
    "diamond": _list_of_diamond,
    "prodigal": lambda *_: PrintedPaths(),
    **dict.fromkeys(("muscle", "mafft", "vina", "obabel", "dock6"), lambda *_: _TYPED),
}


def list_printed_paths(use: ToolUse) -> PrintedPaths:
    """Return the kinds of paths that the outputs of a command show."""
    of_output = _FAMILIES.get(use.adapter)
    if of_output is None:
        return _UNKNOWN
    found = [of_output(use, output) for output in use.outputs]
    return PrintedPaths(
        frozenset().union(*(each.frame for each in found)), frozenset().union(*(each.records for each in found))
    )
