"""Which adapter knows which program."""

from __future__ import annotations

from pathlib import Path

from millrace.tools import blast, diamond, dock6, generic, hmmer_fragments, mafft, muscle, obabel, vina
from millrace.tools.base import Adapter

ADAPTERS: tuple[Adapter, ...] = (
    blast.ADAPTER,
    hmmer_fragments.ADAPTER,
    muscle.ADAPTER,
    mafft.ADAPTER,
    diamond.ADAPTER,
    vina.ADAPTER,
    obabel.ADAPTER,
    dock6.ADAPTER,
)
BY_PROGRAM: dict[str, Adapter] = {program: adapter for adapter in ADAPTERS for program in adapter.programs}


def find(program_name: str) -> Adapter:
    """The adapter of a program, given its name or path; the generic one if no other knows it."""
    return BY_PROGRAM.get(Path(program_name).name, generic.ADAPTER)
