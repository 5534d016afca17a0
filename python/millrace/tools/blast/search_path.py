"""BLAST databases: where BLAST looks for them, and which files they are made of."""

from __future__ import annotations

import os
import re
from pathlib import Path

from millrace.errors import RefusedError
from millrace.model import Command

#: What stands for the entry of ``.ncbirc`` in the environment.
REGISTRY_VARIABLE = "NCBI_CONFIG__BLAST__BLASTDB"


def split_names(text: str) -> list[str]:
    """Database names in one ``-db``: separated by spaces, or in double quotes if they hold spaces.

    >>> split_names('nr "my db" env_nr')
    ['nr', 'my db', 'env_nr']
    """
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', text)]


class SearchPath:
    """Where BLAST looks: the working directory, ``$BLASTDB``, then ``BLASTDB`` of ``.ncbirc``."""

    def __init__(self, command: Command) -> None:
        self.cwd = command.cwd
        self.variable = command.environ.get("BLASTDB", "")
        self.registry = _ncbirc(command)
        places = [str(self.cwd), *self.variable.split(":"), *self.registry.split(":")]
        self.folders = [self.cwd / place for place in places if place]

    def find(self, name: str, letter: str) -> list[Path]:
        """All files of database ``name`` and of those that its alias files name.

        Raises:
            RefusedError: There is no such database, in BLAST's words.
        """
        kind = {"p": "protein", "n": "nucleotide"}[letter]
        found = self._files(name, letter, self.folders, seen=set())
        if found is None:
            path = f"{self.cwd}:{self.variable}:{self.registry}"
            raise RefusedError(
                f"BLAST Database error: No alias or index file found for {kind} database [{name}] "
                f"in search path [{path}]",
                "give -db the path without an ending such as .pin, or make the database with makeblastdb",
            )
        return found

    def base(self, name: str, letter: str, *first: Path) -> Path | None:
        """The path without an ending of database ``name``, looked for in ``first`` too; None if there is none."""
        return self._base(name, letter, [*first, *self.folders])

    def namesake(self, base: Path, letter: str) -> Path | None:
        """The index in the working directory of another volume of the name of ``base``; None if there is none.

        Where an alias names a volume, even by its whole path, BLAST takes this one (seen with 2.12, 2.16 and 2.17).
        An alias there is not taken, nor anything in the other folders.
        """
        index = self.cwd / f"{base.name}.{letter}in"
        return index if index.exists() and not self.cwd.samefile(base.parent) else None

    def taxonomy(self) -> list[Path]:
        """The files that hold the names of taxa, if there are any."""
        names = ("taxdb.btd", "taxdb.bti", "taxonomy4blast.sqlite3")
        return [folder / name for name in names for folder in self.folders if (folder / name).exists()]

    def _files(self, name: str, letter: str, folders: list[Path], seen: set[Path]) -> list[Path] | None:
        base = self._base(name, letter, folders)
        return None if base is None else self._with_aliases(base, letter, folders, seen)

    def _base(self, name: str, letter: str, folders: list[Path]) -> Path | None:
        for folder in folders:
            base = folder / name
            if any(base.with_name(base.name + f".{letter}{end}").exists() for end in ("al", "in")):
                return base
        return None

    def _with_aliases(self, base: Path, letter: str, folders: list[Path], seen: set[Path]) -> list[Path]:
        if base in seen:
            return []
        seen.add(base)
        pattern = re.compile(re.escape(base.name) + rf"(\.\d\d+)?\.({letter}[a-z]{{2}}|rps|loo|aux|freq|wcounts|obsr)")
        files = sorted(file for file in base.parent.iterdir() if pattern.fullmatch(file.name))
        alias = base.with_name(f"{base.name}.{letter}al")
        if not alias.exists():
            return files
        for line in alias.read_text(errors="replace").splitlines():
            key, _, value = line.strip().partition(" ")
            for name in split_names(value):
                if key == "DBLIST":
                    files += self._files(name, letter, [base.parent, *folders], seen) or []
                elif key in ("GILIST", "SEQIDLIST", "TAXIDLIST", "OIDLIST"):
                    files += [folder / name for folder in (base.parent, *folders) if (folder / name).exists()][:1]
        return files


def _ncbirc(command: Command) -> str:
    """``BLASTDB`` in section ``BLAST`` of the first ``.ncbirc`` found, before which the environment comes."""
    environ = command.environ
    if REGISTRY_VARIABLE in environ:
        return environ[REGISTRY_VARIABLE]
    for folder in (str(command.cwd), environ.get("HOME", ""), environ.get("NCBI", "")):
        file = Path(folder) / ".ncbirc"
        if folder and os.access(file, os.R_OK) and file.is_file():  # BLAST passes over what it cannot read
            section = re.search(r"(?ims)^\[BLAST\]\s*$(.*?)(?:^\[|\Z)", file.read_text(errors="replace"))
            entry = re.search(r"(?im)^\s*BLASTDB\s*=\s*(.*?)\s*$", section.group(1)) if section else None
            return entry.group(1) if entry else ""
    return ""
