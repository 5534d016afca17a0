"""Profiles for HMMER, each of one sequence."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path


def profile(record: bytes, name: str) -> bytes:
    """That of a record in FASTA, in HMMER's format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.hmm"
        words: list[str | Path] = [
            "hmmbuild",
            "--amino",
            "--informat",
            "afa",
            "--singlemx",
            "-n",
            name,
            "-o",
            os.devnull,
            path,
            "-",
        ]
        subprocess.run(words, input=record, check=True)
        return path.read_bytes()
