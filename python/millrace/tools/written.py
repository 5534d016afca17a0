"""Arguments of a command that name outputs by URLs, found before any file is read. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.replicas import FETCHED, option_of
from millrace.tools.description import Description
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


def places(
    argv: Sequence[str], outputs: Sequence[str], described: Description | None = None
) -> dict[int, tuple[str, str]]:
    """Return (prefix in the argument, URL) by the position of each argument that names an output by a URL.

    Args:
        outputs: Values of ``--output``, for unknown programs.
        described: Description of the program, if it has one.

    >>> places(("blastp", "-db", "s3://b/nr", "-out", "s3://b/hits"), ())
    {4: ('', 's3://b/hits')}
    >>> places(("obabel", "in.sdf", "-Os3://b/out.sdf"), ())
    {2: ('-O', 's3://b/out.sdf')}
    >>> places(("mytool", "--to=s3://b/x", "s3://b/y"), ("s3://b/x",))
    {1: ('--to=', 's3://b/x')}
    """
    options = _described(described, argv) if described else OPTIONS.get(MODULES.get(Path(argv[0]).name, ""), ())
    found = {}
    for at, word in enumerate(argv[1:], 1):
        option = option_of(word)
        url = word[len(option) :]
        name = (option or argv[at - 1]).strip("-=")
        is_option = bool(option) or argv[at - 1].startswith("-")
        if url.startswith(FETCHED) and (url in outputs or (is_option and name in options)):
            found[at] = (option, url)
    return found


def _described(found: Description, argv: Sequence[str]) -> tuple[str, ...]:
    use = found.use_of(next((word for word in argv[1:] if word in found.verb), ""))
    meant = {name for output in use.output for name in output.option.split()}
    pairs = (pair.split("=") for pair in use.names.split())
    return (*meant, *(short for short, long in pairs if long in meant))
