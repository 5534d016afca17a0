"""Which adapter knows which program; its module is loaded when it is asked for, as a run needs one of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from millrace.tools.base import Adapter

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
}
MODULES = {program: family for family, programs in FAMILIES.items() for program in programs}


def knows(program_name: str) -> bool:
    """Whether an adapter of its own knows the program, given its name or path."""
    return Path(program_name).name in MODULES


def find(program_name: str) -> Adapter:
    """The adapter of a program, given its name or path; the generic one if no other knows it."""
    module = MODULES.get(Path(program_name).name, "generic")
    adapter: Adapter = import_module(f"millrace.tools.{module}").ADAPTER
    return adapter
