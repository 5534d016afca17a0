"""Search path of BLAST databases, and the names of a database's files.

The names are patterns, for folders that can only be listed, or asked for names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from millrace.adapters.adapter_base import FileNamePatterns, match_one_file
from millrace.adapters.option_reader import split_ordered_words
from millrace.core.errors import RefusedError
from millrace.core.tool_use import UserCommand

#: Environment variable that replaces the entry of ``.ncbirc``.
REGISTRY_VARIABLE = "NCBI_CONFIG__BLAST__BLASTDB"


def split_names(text: str) -> list[str]:
    """Split the database names in one ``-db``: separated by spaces, and in double quotes if they contain spaces.

    >>> split_names('nr "my db" env_nr')
    ['nr', 'my db', 'env_nr']
    """
    return [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', text)]


class SearchPath:
    """Folders in which BLAST looks: the working directory, ``$BLASTDB``, then ``BLASTDB`` of ``.ncbirc``."""

    def __init__(self, command: UserCommand) -> None:
        self.cwd = command.cwd
        self.variable = command.environ.get("BLASTDB", "")
        self.registry = _read_ncbirc(command)
        places = [str(self.cwd), *self.variable.split(":"), *self.registry.split(":")]
        self.folders = [self.cwd / place for place in places if place]

    def find_files(self, name: str, letter: str) -> list[Path]:
        """Find all files of database ``name`` and of the databases that its alias files name.

        Raises:
            RefusedError: There is no such database; in BLAST's words.
        """
        kind = {"p": "protein", "n": "nucleotide"}[letter]
        found = self._list_files(name, letter, self.folders, seen=set())
        if found is None:
            path = f"{self.cwd}:{self.variable}:{self.registry}"
            raise RefusedError(
                f"BLAST Database error: No alias or index file found for {kind} database [{name}] "
                f"in search path [{path}]",
                "give -db the path without an ending such as .pin, or make the database with makeblastdb",
            )
        return found

    def find_base(self, name: str, letter: str, *first: Path) -> Path | None:
        """Find database ``name``, in ``first`` and then on the path: its path without ending; None: there is none."""
        return self._find_base_in(name, letter, [*first, *self.folders])

    def find_namesake(self, base: Path, letter: str) -> Path | None:
        """Find the index file of another volume of the name of ``base`` in the working directory; None: there is none.

        Where an alias names a volume, even by its whole path, BLAST reads this one (seen with 2.12, 2.16 and 2.17).
        It reads no alias there, and nothing in the other folders.
        """
        index = self.cwd / f"{base.name}.{letter}in"
        return index if index.exists() and not self.cwd.samefile(base.parent) else None

    def find_taxonomy(self) -> list[Path]:
        """Find the files with the names of taxa, if there are any."""
        names = ("taxdb.btd", "taxdb.bti", "taxonomy4blast.sqlite3")
        return [folder / name for name in names for folder in self.folders if (folder / name).exists()]

    def _list_files(self, name: str, letter: str, folders: list[Path], seen: set[Path]) -> list[Path] | None:
        base = self._find_base_in(name, letter, folders)
        return None if base is None else self._list_alias_files(base, letter, folders, seen)

    def _find_base_in(self, name: str, letter: str, folders: list[Path]) -> Path | None:
        for folder in folders:
            base = folder / name
            if any(base.with_name(base.name + f".{letter}{end}").exists() for end in ("al", "in")):
                return base
        return None

    def _list_alias_files(self, base: Path, letter: str, folders: list[Path], seen: set[Path]) -> list[Path]:
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
                    files += self._list_files(name, letter, [base.parent, *folders], seen) or []
                elif key in ("GILIST", "SEQIDLIST", "TAXIDLIST", "OIDLIST"):
                    files += [folder / name for folder in (base.parent, *folders) if (folder / name).exists()][:1]
        return files


def _read_ncbirc(command: UserCommand) -> str:
    """Read ``BLASTDB`` from the environment, else from section ``BLAST`` of the first ``.ncbirc``; empty: not set."""
    environ = command.environ
    if REGISTRY_VARIABLE in environ:
        return environ[REGISTRY_VARIABLE]
    for folder in (str(command.cwd), environ.get("HOME", ""), environ.get("NCBI", "")):
        file = Path(folder) / ".ncbirc"
        if folder and os.access(file, os.R_OK) and file.is_file():  # BLAST skips files that it cannot read
            section = re.search(r"(?ims)^\[BLAST\]\s*$(.*?)(?:^\[|\Z)", file.read_text(errors="replace"))
            entry = re.search(r"(?im)^\s*BLASTDB\s*=\s*(.*?)\s*$", section.group(1)) if section else None
            return entry.group(1) if entry else ""
    return ""


#: Options that name databases.
NAMING = ("db", "rpsdb", "filtering_db")

#: Endings of the files of a volume, after the letter of its kind, that ``makeblastdb`` of 2.2 to 2.17 writes.
ENDINGS = split_ordered_words("al in hr sq db ot tf to os nd ni sd si og pd pi hd hi aa ab ac td ti js")

#: Lines of an alias that name files with lists of entries.
LISTS = ("GILIST", "SEQIDLIST", "TAXIDLIST", "OIDLIST")

#: Endings of files that searches of separate volumes do not read: the taxon of each entry, the entries of each taxon,
#: and the ids of each entry. Commands with options that read them get whole databases. The taxa in the output come from
#: the headers.
#:
#: Source: "BLAST Database Version 5" of the NCBI C++ Toolkit; ``strace``, and comparison without them, of BLAST+ 2.12,
#: 2.16, 2.17.
UNREAD = ("ot", "tf", "to", "os")

#: Files beside databases that all of them share: the names of taxa.
TAXA = ("taxdb.btd", "taxdb.bti", "taxonomy4blast.sqlite3")


def describe_argument_files(nucleotides: bool, argv: Sequence[str], at: int, name: str) -> FileNamePatterns | None:
    """Describe the files of the database that an argument names; None: it names no database.

    >>> bool(re.fullmatch(describe_argument_files(False, ["blastp", "-db", "nr"], 2, "nr").pattern, "nr.003.psq"))
    True
    >>> describe_argument_files(False, ["blastp", "-query", "q.faa"], 2, "q.faa") is None
    True
    """
    option = (argv[at].partition("=")[0] if argv[at].startswith("-") else argv[at - 1]).lstrip("-")
    if option not in NAMING:
        return None
    return describe_database_files(name, "n" if nucleotides and option != "rpsdb" else "p")


def describe_database_files(name: str, letter: str) -> FileNamePatterns:
    """Describe all files of a database and of its volumes; ``letter`` is ``p`` or ``n``."""
    own, taxa = re.escape(name), "|".join(map(re.escape, TAXA))
    others = ("rps", "loo", "aux", "freq", "wcounts", "obsr")
    return FileNamePatterns(
        needed=rf"{own}\.{letter}(al|in)",
        pattern=rf"{own}(\.\d\d+)?\.({letter}[a-z]{{2}}|{letter}js|{'|'.join(others)})|{taxa}",
        usual=(*(f"{name}.{letter}{ending}" for ending in ENDINGS), *(f"{name}.{each}" for each in others), *TAXA),
        packed=rf"{own}(\.\d\d+)?\.tar\.gz",
        apart=rf".+\.\d\d+\.{letter}(sq|hr)",
        unread=rf".+\.{letter}({'|'.join(UNREAD)})",
    )


def read_file_references(name: str, read: Callable[[], bytes]) -> dict[str, FileNamePatterns]:
    """Describe the files that an alias names: other databases, and lists of entries.

    >>> [*read_file_references("nr.pal", lambda: b"TITLE nr\\nDBLIST nr.00 nr.01\\n")]
    ['nr.00', 'nr.01']
    """
    kind = re.search(r"\.([pn])al$", name)
    found: dict[str, FileNamePatterns] = {}
    for line in read().decode(errors="replace").splitlines() if kind else ():
        key, _, value = line.strip().partition(" ")
        for each in split_names(value) if key in ("DBLIST", *LISTS) else ():
            found[each] = describe_database_files(each, kind[1]) if kind and key == "DBLIST" else match_one_file(each)
    return found
