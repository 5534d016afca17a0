"""Alias files of BLAST databases, as Millrace writes them, and calls of ``run_blastdbcmd``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace._core import Candidates
from millrace.tools.blast.volumes import add_ending

#: Name of each kind of database in BLAST's options, by its letter.
KINDS = {"p": "prot", "n": "nucl"}


def write_alias(alias: Path, letter: str, title: str, databases: Sequence[str], *lines: str) -> None:
    """Write an alias file.

    Args:
        alias: Its path, without the ending.
        letter: ``p`` or ``n``.
        databases: Paths without ending, relative to the alias's folder or absolute.
        lines: Further lines, such as ``FIRST_OID 1``.
    """
    names = " ".join(f'"{name}"' for name in databases)
    text = "\n".join((f"TITLE {title}", f"DBLIST {names}", *lines, ""))
    add_ending(alias, f"{letter}al").write_text(text, "utf-8", "surrogateescape")


def write_masked_aliases(
    entries: Candidates, volumes: Sequence[str], folder: Path, name: str, letter: str, title: str
) -> list[str]:
    """Write an alias for each volume with only its entries of ``entries``. Return their names in ``folder``."""
    names = [f"{name}{number}" for number in range(len(volumes))]
    for number, (part, base) in enumerate(zip(names, volumes, strict=True)):
        entries.write(number, folder / f"{part}.msk")
        write_alias(folder / part, letter, title, [base], f"OIDLIST {part}.msk")
    return names


def run_blastdbcmd(
    letter: str, arguments: Sequence[str], cwd: Path, environ: Mapping[str, str], text: bytes = b""
) -> subprocess.CompletedProcess[bytes] | None:
    """Run ``run_blastdbcmd`` and return its result, whatever its status; None if it is not on the ``PATH``.

    Args:
        text: Its standard input.
    """
    program = shutil.which("blastdbcmd", path=environ.get("PATH"))
    if program is None:
        return None
    return subprocess.run(
        [program, "-dbtype", KINDS[letter], *arguments],
        input=text,
        capture_output=True,
        cwd=cwd,
        env=dict(environ),
        check=False,
    )
