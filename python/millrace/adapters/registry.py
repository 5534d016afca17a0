"""Registry of adapters by program; modules are loaded on demand, as a run needs one of them.

It also finds the arguments that name outputs by URLs, before any file is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.adapters.adapter_base import ToolAdapter
from millrace.adapters.tool_description import ToolDescription
from millrace.core.replica_rules import FETCHED, find_option_prefix

if TYPE_CHECKING:
    from millrace.adapters.description_lookup import FoundDescription


_MAFFT = ["mafft", "fftns", "nwns", "linsi", "ginsi", "einsi", "fftnsi", "nwnsi", "qinsi", "xinsi"]

#: Programs (the last part of the path) of each family, by the module or folder with its ``ADAPTER``.
FAMILIES = {
    "blast": [
        "blastp",
        "blastn",
        "blastx",
        "tblastn",
        "tblastx",
        "psiblast",
        "rpsblast",
        "rpsblast+",
        "rpstblastn",
        "deltablast",
    ],
    "hmmer": ["hmmscan", "nhmmscan", "hmmsearch", "phmmer", "jackhmmer", "nhmmer"],
    "muscle": ["muscle", "muscle3", "muscle5"],
    "mafft": _MAFFT + [f"mafft-{name}" for name in _MAFFT],
    "diamond": ["diamond"],
    "mmseqs": ["mmseqs"],
    "vina": ["vina"],
    "obabel": ["obabel"],
    "dock6": ["dock6"],
    "minimap2": ["minimap2"],
    "infernal": ["cmscan", "cmsearch"],
    "prodigal": ["prodigal"],
}
MODULES = {program: family for family, programs in FAMILIES.items() for program in programs}


def has_adapter(program_name: str) -> bool:
    """Tell whether a program, given its name or path, has an adapter of its own."""
    return Path(program_name).name in MODULES


def find_adapter(
    program_name: str, *, records: bool = False, cwd: Path | None = None, environ: Mapping[str, str] | None = None,
    is_confirmed: bool = False,
) -> ToolAdapter:  # fmt: skip
    """Return the adapter of a program, given its name or path; the generic one if it has no other.

    A description of the project, the user or the site counts before the adapter of an installed package, and this before
    the descriptions of packages and our own.

    Args:
        records: Whether the program uses the record protocol, which takes precedence over its name.
        cwd: Folder of the project, which may have descriptions of tools; None: ignore all descriptions.
        environ: Environment, with the user's folders.
        is_confirmed: See ``millrace.adapters.description_lookup.find_description``.

    Raises:
        RefusedError: Its description is not valid, or was not confirmed.
    """
    name = Path(program_name).name
    module = "records" if records else MODULES.get(name, "generic")
    if module == "generic" and cwd is not None:
        from millrace.adapters import description_lookup

        found = description_lookup.find_description(name, cwd, environ or {}, is_confirmed=is_confirmed)
        is_deliberate = found is not None and found.source in ("project", "user", "site")
        if not is_deliberate and (installed := description_lookup.load_installed_adapter(name)):
            return installed
        if found:
            return make_described_adapter(found)
    adapter: ToolAdapter = import_module(f"millrace.adapters.{module}").ADAPTER
    return adapter


def make_described_adapter(found: FoundDescription) -> ToolAdapter:
    """Make the adapter of a description.

    Raises:
        RefusedError: The description is not valid.
    """
    from millrace.adapters.described_tool import DescribedAdapter
    from millrace.adapters.tool_description import parse_description

    return DescribedAdapter(parse_description(found.content, found.path), ours=found.source == "millrace")


#: Options of outputs, without dashes, by family of programs (``millrace.adapters.registry``).
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
