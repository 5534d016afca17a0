"""Arguments of a command that name outputs by URLs, found before any file is read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.replicas import FETCHED, find_option_prefix
from millrace.tools.description import ToolDescription
from millrace.tools.registry import MODULES

#: Options of outputs, without dashes, by family of programs (``millrace.tools.registry``).
OPTIONS = {
    "blast": ("out",),
    "diamond": ("o", "out", "un", "al"),
    "hmmer": ("o", "A", "tblout", "domtblout", "pfamtblout", "dfamtblout", "aliscoresout", "hmmout"),
    "infernal": ("o", "tblout"),
    "mafft": ("out",),
    "minimap2": ("o",),
    "muscle": ("out", "output"),
    "obabel": ("O",),
    "vina": ("out",),
}


def find_output_urls(
    argv: Sequence[str], outputs: Sequence[str], described: ToolDescription | None = None
) -> dict[int, tuple[str, str]]:
    """Return (prefix in the argument, URL) by the position of each argument that names an output by a URL.

    Args:
        outputs: Values of ``--output``, for unknown programs.
        described: Description of the program, if it has one.

    >>> find_output_urls(("blastp", "-db", "s3://b/nr", "-out", "s3://b/hits"), ())
    {4: ('', 's3://b/hits')}
    >>> find_output_urls(("obabel", "in.sdf", "-Os3://b/out.sdf"), ())
    {2: ('-O', 's3://b/out.sdf')}
    >>> find_output_urls(("mytool", "--to=s3://b/x", "s3://b/y"), ("s3://b/x",))
    {1: ('--to=', 's3://b/x')}
    """
    options = (
        _list_output_options(described, argv) if described else OPTIONS.get(MODULES.get(Path(argv[0]).name, ""), ())
    )
    found = {}
    for at, word in enumerate(argv[1:], 1):
        option = find_option_prefix(word)
        url = word[len(option) :]
        name = (option or argv[at - 1]).strip("-=")
        is_option = bool(option) or argv[at - 1].startswith("-")
        if url.startswith(FETCHED) and (url in outputs or (is_option and name in options)):
            found[at] = (option, url)
    return found


def _list_output_options(found: ToolDescription, argv: Sequence[str]) -> tuple[str, ...]:
    use = found.merge_verb_use(next((word for word in argv[1:] if word in found.verb), ""))
    meant = {name for output in use.output for name in output.option.split()}
    pairs = (pair.split("=") for pair in use.names.split())
    return (*meant, *(short for short, long in pairs if long in meant))
