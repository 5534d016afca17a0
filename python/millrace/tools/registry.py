"""Registry of adapters by program; modules are loaded on demand, as a run needs one of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.tools.base import ToolAdapter

if TYPE_CHECKING:
    from millrace.tools.shelf import FoundDescription

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

    Args:
        records: Whether the program uses the record protocol, which takes precedence over its name.
        cwd: Folder of the project, which may have descriptions of tools; None: ignore all descriptions.
        environ: Environment, with the user's folders.
        is_confirmed: See ``millrace.tools.shelf.find_description``.

    Raises:
        RefusedError: Its description is not valid, or was not confirmed.
    """
    name = Path(program_name).name
    module = "records" if records else MODULES.get(name, "generic")
    if module == "generic" and cwd is not None:
        from millrace.tools import shelf

        if found := shelf.find_description(name, cwd, environ or {}, is_confirmed=is_confirmed):
            return make_described_adapter(found)
    adapter: ToolAdapter = import_module(f"millrace.tools.{module}").ADAPTER
    return adapter


def make_described_adapter(found: FoundDescription) -> ToolAdapter:
    """Make the adapter of a description.

    Raises:
        RefusedError: The description is not valid.
    """
    from millrace.tools.described_tool import DescribedAdapter
    from millrace.tools.description import parse_description

    return DescribedAdapter(parse_description(found.content, found.path), ours=found.source == "millrace")
